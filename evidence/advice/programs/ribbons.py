"""Names in text: a BiLSTM with characters and a CRF on top, tested after each epoch."""
import torch
import torch.nn as nn
import torch.optim as optim
from torch.utils.data import DataLoader, Dataset

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
WORDS, CHARS, TAGS = 20_000, 90, 17
SENTENCE, LETTERS = 64, 16


class Sentences(Dataset):
    def __init__(self, count, seed):
        g = torch.Generator().manual_seed(seed)
        self.words = torch.randint(1, WORDS, (count, SENTENCE), generator=g)
        self.chars = torch.randint(1, CHARS, (count, SENTENCE, LETTERS), generator=g)
        self.tags = torch.randint(0, TAGS, (count, SENTENCE), generator=g)

    def __len__(self):
        return len(self.words)

    def __getitem__(self, i):
        return self.words[i], self.chars[i], self.tags[i]


class CharCNN(nn.Module):
    def __init__(self, dim=50, filters=128):
        super().__init__()
        self.emb = nn.Embedding(CHARS, dim, padding_idx=0)
        self.conv = nn.Conv1d(dim, filters, 3, padding=1)

    def forward(self, chars):
        b, t, k = chars.shape
        x = self.emb(chars.view(b * t, k)).transpose(1, 2)
        x = torch.relu(self.conv(x))
        return x.max(dim=2).values.view(b, t, -1)


class CRF(nn.Module):
    def __init__(self, tags):
        super().__init__()
        self.transitions = nn.Parameter(torch.randn(tags, tags) * 0.1)
        self.start = nn.Parameter(torch.zeros(tags))
        self.end = nn.Parameter(torch.zeros(tags))

    def score(self, emissions, tags):
        s = self.start[tags[:, 0]] + emissions.gather(2, tags.unsqueeze(2)).squeeze(2).sum(1)
        s = s + self.transitions[tags[:, :-1], tags[:, 1:]].sum(1)
        return s + self.end[tags[:, -1]]

    def normalizer(self, emissions):
        alpha = self.start + emissions[:, 0]
        for t in range(1, emissions.shape[1]):
            alpha = torch.logsumexp(alpha.unsqueeze(2) + self.transitions, dim=1) + emissions[:, t]
        return torch.logsumexp(alpha + self.end, dim=1)

    def forward(self, emissions, tags):
        return (self.normalizer(emissions) - self.score(emissions, tags)).mean()


class Tagger(nn.Module):
    def __init__(self, dim=200, hidden=400):
        super().__init__()
        self.words = nn.Embedding(WORDS, dim, padding_idx=0)
        self.chars = CharCNN()
        self.drop = nn.Dropout(0.5)
        self.lstm = nn.LSTM(dim + 128, hidden, num_layers=2, batch_first=True, bidirectional=True, dropout=0.5)
        self.hidden2tag = nn.Linear(2 * hidden, TAGS)
        self.crf = CRF(TAGS)

    def emissions(self, words, chars):
        x = torch.cat([self.words(words), self.chars(chars)], dim=2)
        x, _ = self.lstm(self.drop(x))
        return self.hidden2tag(self.drop(x))

    def forward(self, words, chars, tags):
        return self.crf(self.emissions(words, chars), tags)


def evaluate(model, loader):
    model.eval()
    guesses, answers, losses = [], [], []
    for words, chars, tags in loader:
        words, chars, tags = words.to(DEVICE), chars.to(DEVICE), tags.to(DEVICE)
        scores = model.emissions(words, chars)
        losses.append(model.crf(scores, tags))
        guesses.append(scores.argmax(dim=2))
        answers.append(tags)
    right = (torch.cat(guesses) == torch.cat(answers)).float().mean().item()
    return torch.stack(losses).mean().item(), right


def main():
    train_loader = DataLoader(Sentences(64 * 5, 0), batch_size=64, shuffle=True)
    dev_loader = DataLoader(Sentences(128 * 4, 1), batch_size=128)
    model = Tagger().to(DEVICE)
    optimizer = optim.Adam(model.parameters(), lr=1e-3)

    for epoch in range(1):
        model.train()
        running = 0.0
        for words, chars, tags in train_loader:
            words, chars, tags = words.to(DEVICE), chars.to(DEVICE), tags.to(DEVICE)
            model.zero_grad()
            loss = model(words, chars, tags)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 5.0)
            optimizer.step()
            running += loss.item()
        dev_loss, right = evaluate(model, dev_loader)
        print(f"epoch {epoch}: train {running / len(train_loader):.3f}  dev {dev_loss:.3f}  right {right:.3f}")


if __name__ == "__main__":
    main()
