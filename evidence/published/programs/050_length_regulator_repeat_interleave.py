# needs: torch
# the length regulator of FastSpeech 2 (https://github.com/ming024/FastSpeech2/blob/master/model/modules.py) written with
# repeat_interleave; durations come from the data set
import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence

encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(256, 2, 1024, batch_first=True), 4).cuda()
decoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(256, 2, 1024, batch_first=True), 4).cuda()
mel = nn.Linear(256, 80).cuda()
parameters = [p for m in (encoder, decoder, mel) for p in m.parameters()]
optimizer = torch.optim.Adam(parameters, lr=1e-3)
for step in range(2):
    phonemes = torch.randn(16, 120, 256, device="cuda")
    durations = (torch.arange(16 * 120).reshape(16, 120) % 11 + 1).cuda()  # 1 to 11 frames, 6 in the mean
    hidden = encoder(phonemes)
    expanded = [torch.repeat_interleave(h, d, dim=0) for h, d in zip(hidden, durations)]
    lengths = torch.stack([d.sum() for d in durations])
    expanded = pad_sequence(expanded, batch_first=True)
    padding = torch.arange(expanded.shape[1], device="cuda")[None, :] >= lengths[:, None]
    out = mel(decoder(expanded, src_key_padding_mask=padding))
    loss = (out[~padding] ** 2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, expanded.shape, loss.item())
