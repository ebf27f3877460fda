# litgpt's resource tables and its config hub: fine-tuning and generation with the package's own model, random weights.
import torch
from lightning import Fabric
from litgpt.utils import chunked_cross_entropy
from measure import figure, report

# model, micro batch, tokens of the longest sample, LoRA rank (0: all parameters), where LoRA is, dropout
qv = {"lora_query": True, "lora_value": True}
everywhere = {f"lora_{part}": True for part in ("query", "key", "value", "projection", "mlp", "head")}
tuned = {
    "litgpt-lora-phi15-mb1": ("phi-1_5", 1, 1044, 8, qv),
    "litgpt-lora-phi15-mb2": ("phi-1_5", 2, 1044, 8, qv),
    "litgpt-lora-phi15-mb4": ("phi-1_5", 4, 1044, 8, qv),
    "litgpt-lora-stablelm3b-mb1": ("stablelm-base-alpha-3b", 1, 1034, 8, qv),
    "litgpt-lora-stablelm3b-mb2": ("stablelm-base-alpha-3b", 2, 1034, 8, qv),
    "litgpt-lora-stablelm3b-mb4": ("stablelm-base-alpha-3b", 4, 1034, 8, qv),
    "litgpt-lora-llama2-7b-mb1": ("Llama-2-7b-hf", 1, 1304, 8, qv),
    "litgpt-lora-llama2-7b-mb2": ("Llama-2-7b-hf", 2, 1304, 8, qv),
    "litgpt-lora-llama2-7b-mb4": ("Llama-2-7b-hf", 4, 1304, 8, qv),
    "litgpt-lora-llama2-13b-mb1": ("Llama-2-13b-hf", 1, 1304, 8, qv),
    "litgpt-lora-llama2-13b-mb2": ("Llama-2-13b-hf", 2, 1304, 8, qv),
    "litgpt-hub-llama32-1b-full": ("Llama-3.2-1B", 4, 512, 0, {}),
    "litgpt-hub-llama32-3b-full": ("Llama-3.2-3B", 4, 512, 0, {}),
    "litgpt-hub-phi3-full": ("Phi-3-mini-4k-instruct", 4, 512, 0, {}),
    "litgpt-hub-tinyllama-full": ("tiny-llama-1.1b", 4, 512, 0, {}),
    "litgpt-hub-llama31-8b-full": ("Llama-3.1-8B", 4, 512, 0, {}),
    "litgpt-hub-llama32-1b-lora": ("Llama-3.2-1B", 1, 512, 32, qv),
    "litgpt-hub-llama32-3b-lora": ("Llama-3.2-3B", 1, 512, 32, qv),
    "litgpt-hub-tinyllama-lora": ("tiny-llama-1.1b", 8, 512, 32, everywhere),
    "litgpt-hub-phi2-lora": ("phi-2", 4, 512, 8, everywhere),
    "litgpt-hub-falcon7b-lora": ("falcon-7b", 1, 512, 32, qv),
    "litgpt-hub-gemma2b-lora": ("Gemma-2b", 2, 512, 8, everywhere),
    "litgpt-hub-llama2-7b-lora": ("Llama-2-7b-hf", 2, 512, 32, qv),
    "litgpt-hub-llama31-8b-lora": ("Llama-3.1-8B", 1, 512, 32, qv),
    "litgpt-hub-mistral7b-lora": ("Mistral-7B-v0.1", 2, 512, 32, qv),
    "litgpt-hub-stablelm3b-lora": ("stablelm-base-alpha-3b", 1, 512, 32, qv),
    "litgpt-hub-gemma7b-lora": ("Gemma-7b", 1, 512, 16, everywhere),
    "litgpt-hub-gemma2-9b-lora": ("Gemma-2-9b", 1, 512, 16, everywhere),
}
# model, tokens of the longest sample, version of the adapter
adapted = {
    "litgpt-adapter-stablelm3b": ("stablelm-base-alpha-3b", 1034, 1),
    "litgpt-adapter-llama2-7b": ("Llama-2-7b-hf", 1304, 1),
    "litgpt-adapterv2-llama2-7b": ("Llama-2-7b-hf", 1304, 2),
}
# model, precision, new tokens
generated = {
    "litgpt-gen-phi15": ("phi-1_5", "bf16-true", 50),
    "litgpt-gen-stablelm3b": ("stablelm-base-alpha-3b", "bf16-true", 50),
    "litgpt-gen-llama2-7b": ("Llama-2-7b-hf", "bf16-true", 50),
    "litgpt-gen-llama2-13b": ("Llama-2-13b-hf", "bf16-true", 50),
    "litgpt-gen-falcon7b-fp32": ("falcon-7b", "32-true", 256),
    "litgpt-gen-falcon7b-bf16": ("falcon-7b", "bf16-true", 256),
}


def tune(model_name, batch, length, rank, where):
    if rank:
        from litgpt.lora import GPT, Config, mark_only_lora_as_trainable

        config = Config.from_name(model_name, lora_r=rank, lora_alpha=16, lora_dropout=0.05, **where)
        train(GPT, config, batch, length, mark_only_lora_as_trainable)
    else:
        from litgpt.model import GPT, Config

        train(GPT, Config.from_name(model_name), batch, length, None, chunk=0)


def adapt(model_name, length, version):
    if version == 1:
        from litgpt.adapter import GPT, Config, mark_only_adapter_as_trainable
    else:
        from litgpt.adapter_v2 import GPT, Config
        from litgpt.adapter_v2 import mark_only_adapter_v2_as_trainable as mark_only_adapter_as_trainable
    train(GPT, Config.from_name(model_name), 1, length, mark_only_adapter_as_trainable)


def train(GPT, config, batch, length, mark, chunk=128):
    fabric = Fabric(devices=1, precision="bf16-true")
    fabric.launch()
    with fabric.init_module(empty_init=False):
        model = GPT(config)
    if mark:
        mark(model)
    model = fabric.setup_module(model)
    parameters = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(parameters, lr=2e-4, weight_decay=0.0, betas=(0.9, 0.95))
    optimizer = fabric.setup_optimizers(optimizer)
    model.max_seq_length = length
    ids = torch.randint(0, config.vocab_size, (batch, length))
    accumulate = 2
    for iteration in range(6):
        tokens, targets = fabric.to_device((ids, ids.clone()))
        accumulating = (iteration + 1) % accumulate
        for module in model.modules():  # the adapter's cache is for inference: with it there is no second step
            if hasattr(module, "adapter_kv_cache"):
                module.adapter_kv_cache = None
        logits = model(tokens, lm_head_chunk_size=chunk)
        if chunk:
            logits[-1] = logits[-1][..., :-1, :]
        else:
            logits = logits[..., :-1, :]
        loss = chunked_cross_entropy(logits, targets[..., 1:])
        fabric.backward(loss / accumulate)
        if not accumulating:
            optimizer.step()
            optimizer.zero_grad()


def generate(model_name, precision, new):
    from litgpt.generate.base import next_token
    from litgpt.model import GPT, Config

    fabric = Fabric(devices=1, precision=precision)
    config = Config.from_name(model_name)
    prompt = torch.randint(0, config.vocab_size, (6,), device=fabric.device)
    most = len(prompt) + new
    with fabric.init_module(empty_init=True):
        model = GPT(config)
    with fabric.init_tensor():
        model.max_seq_length = most
        model.set_kv_cache(batch_size=1)
    model.eval()
    model = fabric.setup_module(model)
    with torch.inference_mode():
        token, position = prompt, torch.arange(0, len(prompt), device=fabric.device)
        for _ in range(new):
            token = next_token(model, position, token.view(1, -1), temperature=0.8, top_k=50)
            position = position[-1:] + 1


name = figure()
if name in tuned:
    tune(*tuned[name])
elif name in adapted:
    adapt(*adapted[name])
else:
    generate(*generated[name])
report(torch.cuda.max_memory_allocated())
