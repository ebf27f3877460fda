# needs: torch
# after https://github.com/pytorch/examples/tree/main/word_language_model (--model Transformer, defaults: wikitext-2's 33,278 words,
# emsize 200, nhid 200, nlayers 2, nhead 2, batch 20, bptt 35, plain SGD by hand)
import math
import torch
import torch.nn as nn
import torch.nn.functional as F


class PositionalEncoding(nn.Module):
    def __init__(self, d_model, dropout=0.1, max_len=5000):
        super().__init__()
        self.dropout = nn.Dropout(p=dropout)
        pe = torch.zeros(max_len, d_model)
        position = torch.arange(0, max_len, dtype=torch.float).unsqueeze(1)
        div_term = torch.exp(torch.arange(0, d_model, 2).float() * (-math.log(10000.0) / d_model))
        pe[:, 0::2] = torch.sin(position * div_term)
        pe[:, 1::2] = torch.cos(position * div_term)
        self.register_buffer("pe", pe.unsqueeze(0).transpose(0, 1))

    def forward(self, x):
        return self.dropout(x + self.pe[: x.size(0), :])


class TransformerModel(nn.Transformer):
    def __init__(self, ntoken, ninp, nhead, nhid, nlayers, dropout=0.2):
        super().__init__(d_model=ninp, nhead=nhead, dim_feedforward=nhid, num_encoder_layers=nlayers)
        self.pos_encoder = PositionalEncoding(ninp, dropout)
        self.input_emb = nn.Embedding(ntoken, ninp)
        self.ninp = ninp
        self.decoder = nn.Linear(ninp, ntoken)

    def forward(self, src):
        mask = torch.log(torch.tril(torch.ones(len(src), len(src)))).to(src.device)
        src = self.pos_encoder(self.input_emb(src) * math.sqrt(self.ninp))
        return F.log_softmax(self.decoder(self.encoder(src, mask=mask)), dim=-1)


ntokens = 33278
model = TransformerModel(ntokens, 200, 2, 200, 2).to("cuda")
criterion = nn.NLLLoss()
source = torch.randint(0, ntokens, (35 * 5 + 1, 20)).to("cuda")
model.train()
total_loss = 0.0
for batch, i in enumerate(range(0, source.size(0) - 1, 35)):
    data, targets = source[i : i + 35], source[i + 1 : i + 36].view(-1)
    model.zero_grad()
    output = model(data).view(-1, ntokens)
    loss = criterion(output, targets)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 0.25)
    for p in model.parameters():
        if p.grad is not None:
            p.data.add_(p.grad, alpha=-20)
    total_loss += loss.item()
print("perplexity", math.exp(min(total_loss / 5, 50)))
