"""Documents to vectors with a BERT encoder: mean over tokens, an index of them, the nearest of some questions."""
import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset
from transformers import BertConfig, BertModel

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
VOCAB = 30522


class Passages(Dataset):
    def __init__(self, count, length):
        self.count, self.length = count, length

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        ids = (torch.arange(self.length) * 17 + index * 101) % VOCAB
        mask = (torch.arange(self.length) < self.length - index % 40).long()
        return {"input_ids": ids, "attention_mask": mask}


def mean_pooling(hidden, mask):
    mask = mask.unsqueeze(-1).expand(hidden.size()).float()
    return (hidden * mask).sum(1) / mask.sum(1).clamp(min=1e-9)


class Encoder:
    def __init__(self, config, batch_size=32):
        self.model = BertModel(config, add_pooling_layer=False).to(DEVICE).eval()
        self.batch_size = batch_size

    def encode(self, dataset):
        embeddings = []
        for batch in DataLoader(dataset, batch_size=self.batch_size):
            batch = {k: v.to(DEVICE) for k, v in batch.items()}
            output = self.model(**batch, output_hidden_states=True)
            states = torch.stack(output.hidden_states[-4:]).mean(0)
            pooled = mean_pooling(states, batch["attention_mask"])
            embeddings.append(F.normalize(pooled, dim=-1))
        return torch.cat(embeddings)


def main():
    config = BertConfig(hidden_size=512, num_hidden_layers=8, num_attention_heads=8, intermediate_size=2048)
    encoder = Encoder(config)
    with torch.inference_mode():
        index = encoder.encode(Passages(192, 256))
        queries = encoder.encode(Passages(64, 48))
        scores = queries @ index.t()
        best = scores.topk(10, dim=1)
    for rank in range(3):
        print(rank, best.indices[0, rank].item(), best.values[0, rank].item())


if __name__ == "__main__":
    main()
