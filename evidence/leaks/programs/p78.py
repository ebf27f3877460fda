"""Federated averaging: four clients train copies of the server's model, two steps each per round."""

import copy
import sys

import torch
from torch import nn


class Client:
    def __init__(self, number):
        self.shift = 0.2 * number
        self.model = None

    def receive(self, model):
        self.model = copy.deepcopy(model)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.05, momentum=0.9)

    def local_step(self):
        x = torch.randn(20, 15) + self.shift
        loss = nn.functional.mse_loss(self.model(x), x.sum(dim=1, keepdim=True))
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.item()


class Server:
    def __init__(self):
        self.model = nn.Sequential(nn.Linear(15, 45), nn.ReLU(), nn.Linear(45, 1))
        self.updates = {}

    def collect(self, name, model):
        self.updates[name] = {k: v - self.model.state_dict()[k] for k, v in model.state_dict().items()}

    def aggregate(self):
        state = self.model.state_dict()
        for key in state:
            state[key] = state[key] + torch.stack([u[key] for u in self.updates.values()]).mean(dim=0)
        self.model.load_state_dict(state)


torch.manual_seed(89)
server, clients = Server(), [Client(n) for n in range(4)]
for step in range(int(sys.argv[1])):
    number = step // 2 % 4
    client = clients[number]
    if step % 2 == 0:
        client.receive(server.model)
    loss = client.local_step()
    if step % 2 == 1:
        server.collect(number, client.model)
        if number == 3:
            server.aggregate()
print("clients heard:", sorted(server.updates), "last loss", round(loss, 4))
