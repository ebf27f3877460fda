"""What do they want to hear next? From evenings of songs, some long and some short, a net learns to hum the following one."""

import random

import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader

SONGS = 80_000
random.seed(4)


def evening():
    return torch.randint(1, SONGS, (random.randint(24, 96),))


def together(evenings):
    songs = pad_sequence(evenings, batch_first=True)
    return songs[:, :-1], songs[:, 1:]


class Hummer(nn.Module):
    def __init__(self, dim=192, depth=2, heads=4, longest=128):
        super().__init__()
        self.songs = nn.Embedding(SONGS, dim, padding_idx=0)
        self.places = nn.Embedding(longest, dim)
        layer = nn.TransformerEncoderLayer(dim, heads, 4 * dim, dropout=0.1, batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, depth, enable_nested_tensor=False)
        self.head = nn.Linear(dim, SONGS)

    def states(self, songs):
        n = songs.shape[1]
        x = self.songs(songs) + self.places(torch.arange(n, device=songs.device))
        mask = nn.Transformer.generate_square_subsequent_mask(n, device=songs.device)
        return self.encoder(x, mask=mask, is_causal=True)

    def forward(self, songs):
        return self.head(self.states(songs))


def train_one_epoch(model, loader, criterion, optimizer):
    model.train()
    running = 0.0
    for songs, following in loader:
        songs, following = songs.cuda(non_blocking=True), following.cuda(non_blocking=True)
        logits = model(songs)
        loss = criterion(logits.flatten(0, 1), following.flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=False)
        running += loss.item()
    return running / len(loader)


@torch.no_grad()
def evaluate(model, loader):
    model.eval()
    scores, truths = [], []
    for songs, following in loader:
        state = model.states(songs.cuda())[:, -1]
        scores.append(model.head(state))
        truths.append(following[:, -1].cuda())
    scores, truths = torch.cat(scores), torch.cat(truths)
    best = scores.topk(10, dim=1).indices
    return (best == truths[:, None]).any(dim=1).float().mean().item()


def main():
    train = DataLoader([evening() for _ in range(96)], batch_size=16, collate_fn=together, shuffle=False)
    test = DataLoader([evening() for _ in range(1280)], batch_size=128, collate_fn=together)
    model = Hummer().cuda()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    criterion = nn.CrossEntropyLoss(ignore_index=0)
    print("loss", train_one_epoch(model, train, criterion, optimizer))
    print("hits", evaluate(model, test))


if __name__ == "__main__":
    main()
