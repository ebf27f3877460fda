# needs: torch, transformers >= 4.56
# after https://huggingface.co/docs/transformers/en/model_doc/mixtral (router_aux_loss_coef, output_router_logits): a mixture of
# eight experts with Mixtral's routing, an eighth of its width
import torch
from transformers import AutoModelForCausalLM, MixtralConfig

config = MixtralConfig(
    vocab_size=32000,
    hidden_size=1024,
    intermediate_size=3584,
    num_hidden_layers=8,
    num_attention_heads=16,
    num_key_value_heads=4,
    num_local_experts=8,
    num_experts_per_tok=2,
    max_position_embeddings=4096,
    output_router_logits=True,
    use_cache=False,
)
with torch.device("cuda"):
    model = AutoModelForCausalLM.from_config(config)
model.train()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
for step in range(2):
    input_ids = torch.randint(0, 32000, (4, 1024), device="cuda")
    with torch.autocast("cuda", dtype=torch.bfloat16):
        loss = model(input_ids=input_ids, attention_mask=torch.ones_like(input_ids), labels=input_ids).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print(step, loss.item())
