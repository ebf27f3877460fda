"""Requests are served in a copied context each; the contexts are kept for tracing."""

import contextvars
import sys

import torch
from torch import nn

request = contextvars.ContextVar("request")
answer = contextvars.ContextVar("answer")


class Service:
    def __init__(self):
        self.model = nn.Sequential(nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, 32)).eval()
        self.trail = []

    def handle(self):
        answer.set(self.model(request.get()))  # LEAK

    def serve(self, payload):
        context = contextvars.copy_context()
        context.run(request.set, payload)
        context.run(self.handle)
        self.trail.append(context)
        return context[answer]


torch.manual_seed(24)
service = Service()
with torch.no_grad():
    for _ in range(int(sys.argv[1])):
        result = service.serve(torch.randn(4, 128))  # LEAK
print(result.sum().item(), len(service.trail))
