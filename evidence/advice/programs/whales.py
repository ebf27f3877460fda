"""What whales say, put into words: a small Whisper of transformers learns from spectra of their songs."""

import torch
from transformers import WhisperConfig, WhisperForConditionalGeneration

WORDS = 20000


def listener():
    config = WhisperConfig(
        vocab_size=WORDS,
        num_mel_bins=80,
        d_model=256,
        encoder_layers=4,
        decoder_layers=2,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=1024,
        decoder_ffn_dim=1024,
        max_source_positions=500,
        max_target_positions=128,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        decoder_start_token_id=1,
        use_cache=False,
    )
    return WhisperForConditionalGeneration(config).cuda()


model = listener()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
for step in range(4):
    spectra = torch.randn(8, 80, 1000).cuda()
    words = torch.randint(3, WORDS, (8, 96)).cuda()
    heard = model(input_features=spectra, labels=words)
    heard.loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print(step, heard.loss.item())
