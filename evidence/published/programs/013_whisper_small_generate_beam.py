# needs: torch, transformers >= 4.56
# after https://huggingface.co/docs/transformers/en/model_doc/whisper (English-only model), five beams as in OpenAI's decoding
import torch
from transformers import AutoModelForSpeechSeq2Seq, GenerationConfig, WhisperConfig

config = WhisperConfig(
    vocab_size=51864,
    num_mel_bins=80,
    d_model=768,
    encoder_layers=12,
    encoder_attention_heads=12,
    decoder_layers=12,
    decoder_attention_heads=12,
    encoder_ffn_dim=3072,
    decoder_ffn_dim=3072,
    max_source_positions=1500,
    max_target_positions=448,
    pad_token_id=50256,
    bos_token_id=50256,
    eos_token_id=50256,
    decoder_start_token_id=50257,
)
with torch.device("cuda"):
    model = AutoModelForSpeechSeq2Seq.from_config(config).eval()
model.generation_config = GenerationConfig(
    bos_token_id=50256,
    eos_token_id=50256,
    pad_token_id=50256,
    decoder_start_token_id=50257,
    is_multilingual=False,
    no_timestamps_token_id=50362,
    max_initial_timestamp_index=50,
    max_length=448,
    return_timestamps=False,
)

input_features = torch.randn(1, 80, 3000).to("cuda")
generated_ids = model.generate(input_features, num_beams=5, max_new_tokens=16)
print(generated_ids.shape)
