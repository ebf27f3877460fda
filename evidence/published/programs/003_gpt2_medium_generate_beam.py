# needs: torch, transformers >= 4.56
# after https://huggingface.co/blog/how-to-generate (beam search, no_repeat_ngram_size, early_stopping)
import torch
from transformers import AutoModelForCausalLM, GPT2Config

config = GPT2Config(vocab_size=50257, n_positions=1024, n_embd=1024, n_layer=24, n_head=16)
with torch.device("cuda"):
    model = AutoModelForCausalLM.from_config(config).eval()

# a left-padded batch, as a tokenizer with padding_side="left" makes it
input_ids = torch.randint(0, 50257, (4, 64))
attention_mask = torch.ones_like(input_ids)
for row, pad in enumerate([0, 7, 20, 33]):
    input_ids[row, :pad] = 50256
    attention_mask[row, :pad] = 0
beam_outputs = model.generate(
    input_ids.cuda(),
    attention_mask=attention_mask.cuda(),
    max_new_tokens=16,
    num_beams=5,
    no_repeat_ngram_size=2,
    num_return_sequences=5,
    early_stopping=True,
    pad_token_id=50256,
)
print(beam_outputs.shape)
