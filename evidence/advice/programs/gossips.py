"""Questions find the piece of gossip that answers them, word against word."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from transformers import RobertaConfig, RobertaModel


@dataclass
class Options:
    words: int = 14000
    asked: int = 32
    told: int = 128
    rows: int = 20
    steps: int = 4
    archive: int = 12
    width: int = 128


class Listener(nn.Module):
    def __init__(self, o: Options):
        super().__init__()
        config = RobertaConfig(
            vocab_size=o.words,
            hidden_size=384,
            num_hidden_layers=4,
            num_attention_heads=6,
            intermediate_size=1536,
            max_position_embeddings=160,
        )
        self.roberta = RobertaModel(config, add_pooling_layer=False)
        self.project = nn.Linear(384, o.width, bias=False)

    def forward(self, ids):
        states = self.roberta(input_ids=ids, attention_mask=torch.ones_like(ids)).last_hidden_state
        return F.normalize(self.project(states), dim=-1)


def similarity(questions, stories):
    """Each question with each story: of every word of it, its best match."""
    rows, asked, width = questions.shape
    left = questions.unsqueeze(1).repeat(1, len(stories), 1, 1)
    right = stories.unsqueeze(0).repeat(rows, 1, 1, 1)
    table = torch.matmul(left, right.transpose(-1, -2))
    return table.max(dim=-1).values.sum(dim=-1)


def archive(listener, loader):
    """All stories, word by word, to be searched later."""
    listener.eval()
    shelves = []
    with torch.no_grad():
        for (ids,) in loader:
            shelves.append(listener(ids))
    listener.train()
    return torch.cat([shelf.cpu() for shelf in shelves])


def main(o: Options):
    set_seed(11)
    accelerator = Accelerator()
    ask, tell = Listener(o), Listener(o)
    pairs = TensorDataset(
        torch.randint(3, o.words, (o.rows * o.steps, o.asked)), torch.randint(3, o.words, (o.rows * o.steps, o.told))
    )
    stories = TensorDataset(torch.randint(3, o.words, (o.archive * 64, o.told)))
    optimizer = torch.optim.AdamW([*ask.parameters(), *tell.parameters()], lr=2e-5)
    loader, shelf = DataLoader(pairs, batch_size=o.rows, shuffle=True), DataLoader(stories, batch_size=64)
    ask, tell, optimizer, loader, shelf = accelerator.prepare(ask, tell, optimizer, loader, shelf)

    for question, story in loader:
        optimizer.zero_grad()
        scores = similarity(ask(question), tell(story)) / 0.05
        right = torch.arange(len(scores), device=accelerator.device)
        loss = F.cross_entropy(scores, right)
        accelerator.backward(loss)
        optimizer.step()
        accelerator.print(f"{loss.item():.3f}")

    index = archive(tell, shelf)
    accelerator.print("archived", tuple(index.shape))


if __name__ == "__main__":
    main(Options())
