# needs: torch, transformers >= 4.56
# after https://huggingface.co/docs/transformers/en/model_doc/t5 (translation, batched inference with padding, greedy)
import torch
from transformers import AutoModelForSeq2SeqLM, T5Config

config = T5Config(
    vocab_size=32128,
    d_model=512,
    d_kv=64,
    d_ff=2048,
    num_layers=6,
    num_heads=8,
    decoder_start_token_id=0,
    dropout_rate=0.1,
)
with torch.device("cuda"):
    model = AutoModelForSeq2SeqLM.from_config(config).eval()

input_ids = torch.randint(2, 32000, (16, 40))
attention_mask = torch.ones_like(input_ids)
for row in range(16):  # right-padded, as the tokenizer does it
    input_ids[row, 40 - row :] = 0
    attention_mask[row, 40 - row :] = 0
output_sequences = model.generate(
    input_ids=input_ids.cuda(), attention_mask=attention_mask.cuda(), do_sample=False, max_new_tokens=24
)
print(output_sequences.shape)
