"""Vectors of sentences from a BERT, and which of them lie nearest to each other."""

import torch
from transformers import BertConfig, BertModel

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
config = BertConfig(hidden_size=512, num_hidden_layers=4, num_attention_heads=8, intermediate_size=2048)
model = BertModel(config, add_pooling_layer=False).to(DEVICE).eval()
sentences = torch.randint(0, config.vocab_size, (512, 256))

vectors = []
with torch.no_grad():
    for tokens in sentences.split(32):
        states = model(tokens.to(DEVICE)).last_hidden_state
        vectors.append(states[:, 0])
vectors = torch.nn.functional.normalize(torch.cat(vectors), dim=1)
nearest = (vectors @ vectors.T).fill_diagonal_(-1).argmax(1)
print(nearest.shape)
