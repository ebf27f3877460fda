"""Delivery times of parcels: an FT-Transformer on columns of numbers and kinds."""
import math

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
N_NUM = 48
CARDINALITIES = [12, 7, 31, 24, 365, 50, 200, 5]


class FeatureTokenizer(nn.Module):
    def __init__(self, n_num, cardinalities, d_token):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(n_num + 1, d_token))
        self.bias = nn.Parameter(torch.zeros(n_num + len(cardinalities), d_token))
        self.register_buffer("offsets", torch.tensor([0] + cardinalities[:-1]).cumsum(0))
        self.embeddings = nn.Embedding(sum(cardinalities), d_token)
        nn.init.kaiming_uniform_(self.weight, a=math.sqrt(5))
        nn.init.kaiming_uniform_(self.embeddings.weight, a=math.sqrt(5))

    def forward(self, x_num, x_cat):
        ones = torch.ones(len(x_num), 1, device=x_num.device)
        x_num = torch.cat([ones, x_num], dim=1)
        x = self.weight[None] * x_num[:, :, None]
        x = torch.cat([x, self.embeddings(x_cat + self.offsets[None])], dim=1)
        bias = torch.cat([torch.zeros(1, self.bias.shape[1], device=x.device), self.bias])
        return x + bias[None]


class MultiheadAttention(nn.Module):
    def __init__(self, d, n_heads, dropout):
        super().__init__()
        self.W_q = nn.Linear(d, d)
        self.W_k = nn.Linear(d, d)
        self.W_v = nn.Linear(d, d)
        self.W_out = nn.Linear(d, d)
        self.n_heads = n_heads
        self.dropout = nn.Dropout(dropout)

    def _reshape(self, x):
        b, n, d = x.shape
        return x.reshape(b, n, self.n_heads, d // self.n_heads).transpose(1, 2)

    def forward(self, x_q, x_kv):
        q, k, v = self._reshape(self.W_q(x_q)), self._reshape(self.W_k(x_kv)), self._reshape(self.W_v(x_kv))
        attention = F.softmax(q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1]), dim=-1)
        attention = self.dropout(attention)
        x = attention @ v
        return self.W_out(x.transpose(1, 2).flatten(2))


class Layer(nn.Module):
    def __init__(self, d_token, n_heads, d_hidden, dropout):
        super().__init__()
        self.attention = MultiheadAttention(d_token, n_heads, dropout)
        self.norm0 = nn.LayerNorm(d_token)
        self.norm1 = nn.LayerNorm(d_token)
        self.linear0 = nn.Linear(d_token, d_hidden * 2)
        self.linear1 = nn.Linear(d_hidden, d_token)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x):
        h = self.norm0(x)
        x = x + self.attention(h, h)
        h = self.linear0(self.norm1(x))
        a, b = h.chunk(2, dim=-1)
        return x + self.linear1(self.dropout(a * F.relu(b)))


class FTTransformer(nn.Module):
    def __init__(self, n_num, cardinalities, d_token=192, n_layers=3, n_heads=8, dropout=0.2):
        super().__init__()
        self.tokenizer = FeatureTokenizer(n_num, cardinalities, d_token)
        self.layers = nn.ModuleList(Layer(d_token, n_heads, d_token * 4 // 3, dropout) for _ in range(n_layers))
        self.norm = nn.LayerNorm(d_token)
        self.head = nn.Linear(d_token, 1)

    def forward(self, x_num, x_cat):
        x = self.tokenizer(x_num, x_cat)
        for layer in self.layers:
            x = layer(x)
        return self.head(F.relu(self.norm(x[:, 0]))).squeeze(-1)


rows = 6 * 1024
dataset = TensorDataset(
    torch.randn(rows, N_NUM),
    torch.stack([torch.randint(0, c, (rows,)) for c in CARDINALITIES], dim=1),
    torch.randn(rows),
)
loader = DataLoader(dataset, batch_size=1024, shuffle=True)

model = FTTransformer(N_NUM, CARDINALITIES).to(DEVICE)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=1e-5)
history = []

for epoch in range(1):
    model.train()
    for x_num, x_cat, y in loader:
        x_num, x_cat, y = x_num.to(DEVICE), x_cat.to(DEVICE), y.to(DEVICE)
        optimizer.zero_grad()
        loss = F.mse_loss(model(x_num, x_cat), y)
        loss.backward()
        optimizer.step()
        history.append(loss.item())
    print(f"epoch {epoch}: rmse {math.sqrt(abs(sum(history) / len(history))):.4f}")
