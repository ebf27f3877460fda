# needs: torch, transformers >= 4.56
# after https://sbert.net/docs/sentence_transformer/training_overview.html (MultipleNegativesRankingLoss) and the mean pooling that
# https://huggingface.co/sentence-transformers/all-MiniLM-L6-v2 gives for plain transformers
import torch
import torch.nn.functional as F
from transformers import AutoModel, BertConfig


def mean_pooling(model_output, attention_mask):
    token_embeddings = model_output[0]
    mask = attention_mask.unsqueeze(-1).expand(token_embeddings.size()).float()
    return torch.sum(token_embeddings * mask, 1) / torch.clamp(mask.sum(1), min=1e-9)


def batch(size, longest):
    input_ids = torch.randint(1000, 30000, (size, longest))
    attention_mask = torch.ones_like(input_ids)
    for row in range(size):
        n = longest - row % (longest // 2)
        input_ids[row, n:], attention_mask[row, n:] = 0, 0
    return {"input_ids": input_ids.cuda(), "attention_mask": attention_mask.cuda()}


config = BertConfig(
    vocab_size=30522, hidden_size=384, num_hidden_layers=6, num_attention_heads=12, intermediate_size=1536
)
model = AutoModel.from_config(config).cuda()
model.train()
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-5)
for step in range(2):
    anchors, positives = batch(1024, 64), batch(1024, 128)
    a = F.normalize(mean_pooling(model(**anchors), anchors["attention_mask"]))
    p = F.normalize(mean_pooling(model(**positives), positives["attention_mask"]))
    scores = 20.0 * a @ p.T
    loss = F.cross_entropy(scores, torch.arange(1024, device="cuda"))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())
