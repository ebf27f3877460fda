# needs: torch, transformers >= 4.56
# after https://huggingface.co/docs/transformers/en/model_doc/flan-t5 and the beam search of generation_strategies; float32
import torch
from transformers import AutoModelForSeq2SeqLM, T5Config

config = T5Config(
    vocab_size=32128,
    d_model=2048,
    d_kv=64,
    d_ff=5120,
    num_layers=24,
    num_heads=32,
    feed_forward_proj="gated-gelu",
    tie_word_embeddings=False,
    decoder_start_token_id=0,
    dropout_rate=0.1,
)
with torch.device("cuda"):
    model = AutoModelForSeq2SeqLM.from_config(config).eval()

input_ids = torch.randint(2, 32000, (1, 64), device="cuda")
outputs = model.generate(
    input_ids, attention_mask=torch.ones_like(input_ids), max_new_tokens=8, num_beams=4, early_stopping=True
)
print(outputs.shape)
