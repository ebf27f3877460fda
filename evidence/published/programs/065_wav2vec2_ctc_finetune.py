# needs: torch, transformers >= 4.56
# after https://huggingface.co/blog/fine-tune-wav2vec2-english (wav2vec2-base, CTC, frozen feature encoder, mixed precision):
# eight recordings of up to ten seconds, padded; labels padded with -100
import torch
from transformers import Wav2Vec2Config, Wav2Vec2ForCTC

config = Wav2Vec2Config(vocab_size=32, ctc_loss_reduction="mean", pad_token_id=31, mask_time_prob=0.05)
model = Wav2Vec2ForCTC(config).cuda()
model.freeze_feature_encoder()
model.train()
optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-4, weight_decay=0.005)
scaler = torch.amp.GradScaler("cuda")
for step in range(2):
    lengths = [160000 - 4000 * row for row in range(8)]
    input_values, attention_mask = torch.zeros(8, 160000), torch.zeros(8, 160000, dtype=torch.long)
    labels = torch.full((8, 90), -100)
    for row, n in enumerate(lengths):
        input_values[row, :n], attention_mask[row, :n] = torch.randn(n), 1
        labels[row, : 90 - 3 * row] = torch.randint(0, 30, (90 - 3 * row,))
    batch = {"input_values": input_values.cuda(), "attention_mask": attention_mask.cuda(), "labels": labels.cuda()}
    with torch.autocast("cuda", dtype=torch.float16):
        loss = model(**batch).loss
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad()
    print(step, loss.item())
