# needs: torch, transformers >= 4.56
# after https://huggingface.co/openai/whisper-large-v3 (float16; language and task given); log-mel features made here
import torch
from transformers import AutoModelForSpeechSeq2Seq, GenerationConfig, WhisperConfig

config = WhisperConfig(
    vocab_size=51866,
    num_mel_bins=128,
    d_model=1280,
    encoder_layers=32,
    encoder_attention_heads=20,
    decoder_layers=32,
    decoder_attention_heads=20,
    encoder_ffn_dim=5120,
    decoder_ffn_dim=5120,
    max_source_positions=1500,
    max_target_positions=448,
    pad_token_id=50256,
    bos_token_id=50257,
    eos_token_id=50257,
    decoder_start_token_id=50258,
)
with torch.device("cuda"):
    model = AutoModelForSpeechSeq2Seq.from_config(config, dtype=torch.float16).eval()
model.generation_config = GenerationConfig(
    bos_token_id=50257,
    eos_token_id=50257,
    pad_token_id=50257,
    decoder_start_token_id=50258,
    is_multilingual=True,
    lang_to_id={"<|en|>": 50259},
    task_to_id={"transcribe": 50360, "translate": 50359},
    no_timestamps_token_id=50364,
    max_initial_timestamp_index=50,
    max_length=448,
    return_timestamps=False,
)

input_features = torch.randn(8, 128, 3000, device="cuda", dtype=torch.float16)  # eight pieces of 30 seconds
pred_ids = model.generate(input_features, language="en", task="transcribe", max_new_tokens=16)
print(pred_ids.shape)
