# needs: torch
# sequences of several lengths as one packed tensor (https://docs.pytorch.org/tutorials/beginner/chatbot_tutorial.html and
# https://docs.pytorch.org/docs/stable/generated/torch.nn.utils.rnn.pack_padded_sequence.html), split again by lengths on the device
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

embedding = nn.Embedding(20000, 512).cuda()
gru = nn.GRU(512, 512, num_layers=2, dropout=0.1, bidirectional=True, batch_first=True).cuda()
head = nn.Linear(1024, 20000).cuda()
optimizer = torch.optim.Adam([*embedding.parameters(), *gru.parameters(), *head.parameters()], lr=1e-4)
for step in range(2):
    lengths = torch.tensor([120 - row for row in range(64)])
    tokens = torch.randint(1, 20000, (64, 120)).cuda()
    packed = pack_padded_sequence(embedding(tokens), lengths, batch_first=True)
    outputs, _ = gru(packed)
    outputs, _ = pad_packed_sequence(outputs, batch_first=True)
    mask = torch.arange(120, device="cuda")[None, :] < lengths.cuda()[:, None]
    flat = outputs[mask]
    pieces = torch.split(flat, lengths.cuda().tolist())
    loss = sum(
        nn.functional.cross_entropy(head(piece[:-1]), torch.zeros(len(piece) - 1, dtype=torch.long, device="cuda"))
        for piece in pieces
    )
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, flat.shape, len(pieces), loss.item())
