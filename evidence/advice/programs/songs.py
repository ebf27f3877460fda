"""Songs in one singer's words: a Llama of transformers stays as it is, LoRA of peft beside its attention learns."""

import torch
from peft import LoraConfig, get_peft_model
from torch.utils.data import DataLoader, TensorDataset
from transformers import LlamaConfig, LlamaForCausalLM

WORDS = 8000


def lines(count, length):
    ids = torch.randint(0, WORDS, (count, length))
    return DataLoader(TensorDataset(ids), batch_size=8, shuffle=True, drop_last=True)


def singer():
    config = LlamaConfig(
        vocab_size=WORDS,
        hidden_size=384,
        intermediate_size=1024,
        num_hidden_layers=6,
        num_attention_heads=6,
        num_key_value_heads=6,
        use_cache=False,
    )
    model = LlamaForCausalLM(config)
    lora = LoraConfig(r=8, lora_alpha=16, lora_dropout=0.05, target_modules=["q_proj", "v_proj"])
    return get_peft_model(model, lora).cuda()


def main():
    model = singer()
    model.train()
    learned = [p for p in model.parameters() if p.requires_grad]
    print(sum(p.numel() for p in learned), "of", sum(p.numel() for p in model.parameters()))
    optimizer = torch.optim.AdamW(learned, lr=2e-4)
    causal = torch.ones(1, 1, 256, 256, dtype=torch.bool, device="cuda").tril()
    for step, (ids,) in enumerate(lines(40, 256)):
        ids = ids.cuda(non_blocking=True)
        loss = model(input_ids=ids, attention_mask=causal, labels=ids).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(learned, 1.0)
        optimizer.step()
        optimizer.zero_grad()
        if step % 2 == 0:
            print(step, loss.item())


if __name__ == "__main__":
    main()
