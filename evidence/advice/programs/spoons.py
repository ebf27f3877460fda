"""A language model with mixture-of-experts layers: a softmax router, every expert computed, the best two weighted."""
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

VOCAB, SEQ, DIM, HEADS, DEPTH, EXPERTS, TOP_K = 8000, 256, 384, 6, 6, 8, 2
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


class Lines(Dataset):
    def __init__(self, count):
        self.text = torch.arange(count * SEQ + 1) * 31 % VOCAB

    def __len__(self):
        return (len(self.text) - 1) // SEQ

    def __getitem__(self, index):
        part = self.text[index * SEQ : (index + 1) * SEQ + 1]
        return part[:-1], part[1:]


class Expert(nn.Module):
    def __init__(self, dim, hidden):
        super().__init__()
        self.w1 = nn.Linear(dim, hidden, bias=False)
        self.w3 = nn.Linear(dim, hidden, bias=False)
        self.w2 = nn.Linear(hidden, dim, bias=False)

    def forward(self, x):
        return self.w2(F.silu(self.w1(x)) * self.w3(x))


class MoE(nn.Module):
    def __init__(self, dim, hidden):
        super().__init__()
        self.router = nn.Linear(dim, EXPERTS, bias=False)
        self.experts = nn.ModuleList([Expert(dim, hidden) for _ in range(EXPERTS)])

    def forward(self, x):
        probs = self.router(x).softmax(dim=-1)
        weights, chosen = probs.topk(TOP_K, dim=-1)
        gates = torch.zeros_like(probs).scatter(-1, chosen, weights / weights.sum(-1, keepdim=True))
        outputs = torch.stack([expert(x) for expert in self.experts], dim=-2)
        balance = EXPERTS * (probs.mean((0, 1)) * (gates > 0).float().mean((0, 1))).sum()
        return (gates.unsqueeze(-1) * outputs).sum(dim=-2), balance


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.RMSNorm(DIM), nn.RMSNorm(DIM)
        self.qkv = nn.Linear(DIM, 3 * DIM, bias=False)
        self.out = nn.Linear(DIM, DIM, bias=False)
        self.moe = MoE(DIM, 2 * DIM)

    def forward(self, x):
        b, t, _ = x.shape
        qkv = self.qkv(self.norm1(x)).view(b, t, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(*qkv, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(b, t, DIM))
        y, balance = self.moe(self.norm2(x))
        return x + y, balance


class Mixture(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, DIM)
        self.place = nn.Parameter(torch.zeros(SEQ, DIM))
        self.layers = nn.ModuleList([Layer() for _ in range(DEPTH)])
        self.norm = nn.RMSNorm(DIM)
        self.head = nn.Linear(DIM, VOCAB, bias=False)

    def forward(self, ids):
        x, aux = self.embed(ids) + self.place, 0
        for layer in self.layers:
            x, balance = layer(x)
            aux = aux + balance
        return self.head(self.norm(x)), aux


def main():
    torch.manual_seed(0)
    loader = DataLoader(Lines(96), batch_size=16, shuffle=True)
    net = Mixture().to(DEVICE)
    opt = torch.optim.AdamW(net.parameters(), lr=3e-4, weight_decay=0.1)
    print(sum(p.numel() for p in net.parameters()) // 10**6, "million parameters")
    for step, (ids, target) in enumerate(loader):
        ids, target = ids.to(DEVICE), target.to(DEVICE)
        opt.zero_grad()
        scores, aux = net(ids)
        loss = F.cross_entropy(scores.flatten(0, 1), target.flatten()) + 0.01 * aux
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        opt.step()
        print(step, loss.item(), aux.item())


if __name__ == "__main__":
    main()
