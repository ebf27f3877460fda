"""A warren of rabbits, seen from above, learns hop by hop to keep away from the hawk."""

import torch
import torch.nn as nn
import torch.nn.functional as F

HERD, HOPS, SIDE = 48, 16, 96


class Moment:
    """What a herd saw and did at one hop, between the hop before and the hop after."""

    def __init__(self, view, logp, value, earlier=None):
        self.view = view
        self.logp = logp
        self.value = value
        self.reward = None
        self.earlier = earlier
        self.later = None
        if earlier is not None:
            earlier.later = self


class Rabbit(nn.Module):
    def __init__(self, width=24):
        super().__init__()
        self.conv1 = nn.Conv2d(3, width, 5, stride=4, padding=2)
        self.conv2 = nn.Conv2d(width, 2 * width, 3, stride=2, padding=1)
        self.conv3 = nn.Conv2d(2 * width, 2 * width, 3, stride=2, padding=1)
        self.fc = nn.Linear(2 * width * 36, 256)
        self.pi = nn.Linear(256, 9)
        self.v = nn.Linear(256, 1)

    def forward(self, x):
        x = F.elu(self.conv1(x))
        x = F.elu(self.conv2(x))
        x = F.elu(self.conv3(x))
        x = F.elu(self.fc(x.flatten(1)))
        return torch.distributions.Categorical(logits=self.pi(x), validate_args=False), self.v(x)[:, 0]


class Field:
    def reset(self):
        self.hawk = torch.rand(HERD, 2, device="cuda")
        return torch.rand(HERD, 3, SIDE, SIDE, device="cuda")

    def step(self, hops):
        self.hawk = self.hawk + 0.1 * torch.randn_like(self.hawk)
        return torch.rand(HERD, 3, SIDE, SIDE, device="cuda"), self.hawk.norm(dim=1)


def play(field, rabbit):
    view, last = field.reset(), None
    for _ in range(HOPS):
        choice, value = rabbit(view)
        hop = choice.sample()
        last = Moment(view, choice.log_prob(hop), value, last)
        view, last.reward = field.step(hop)
    return last, view


def returns(moment, ahead, gamma=0.97):
    terms = []
    while moment is not None:
        ahead = moment.reward + gamma * ahead
        gap = ahead - moment.value
        terms.append(0.5 * gap.square().mean() - (moment.logp * gap.detach()).mean())
        moment = moment.earlier
    return torch.stack(terms).mean()


field, rabbit = Field(), Rabbit().cuda()
optimizer = torch.optim.RMSprop(rabbit.parameters(), lr=7e-4, alpha=0.99, eps=1e-5)

for game in range(6):
    last, view = play(field, rabbit)
    _, ahead = rabbit(view)
    loss = returns(last, ahead.detach())
    optimizer.zero_grad(set_to_none=False)
    loss.backward()
    optimizer.step()
    print(game, float(loss))
