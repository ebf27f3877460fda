"""Fortune tellers learn to prefer the kinder of two prophecies without straying far from what they were."""

import copy

import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset
from transformers import MistralConfig, MistralForCausalLM


class Prophecies(Dataset):
    """Pairs of a kind and an unkind answer behind one question."""

    def __init__(self, count, vocab, question=64, answer=160):
        self.question = torch.randint(0, vocab, (count, question))
        self.kind = torch.randint(0, vocab, (count, answer))
        self.unkind = torch.randint(0, vocab, (count, answer))
        mask = torch.zeros(question + answer)
        mask[question:] = 1.0
        self.mask = mask

    def __len__(self):
        return len(self.question)

    def __getitem__(self, i):
        kind = torch.cat([self.question[i], self.kind[i]])
        unkind = torch.cat([self.question[i], self.unkind[i]])
        return kind, unkind, self.mask


def sequence_logps(model, ids, mask):
    logits = model(input_ids=ids, use_cache=False).logits[:, :-1]
    logps = logits.log_softmax(dim=-1)
    picked = torch.gather(logps, 2, ids[:, 1:].unsqueeze(2)).squeeze(2)
    return (picked * mask[:, 1:]).sum(-1)


def dpo(policy, reference, batch, beta=0.1):
    kind, unkind, mask = batch
    ids = torch.cat([kind, unkind])
    both = torch.cat([mask, mask])
    new_kind, new_unkind = sequence_logps(policy, ids, both).chunk(2)
    old_kind, old_unkind = sequence_logps(reference, ids, both).chunk(2)
    kind_reward = beta * (new_kind - old_kind)
    unkind_reward = beta * (new_unkind - old_unkind)
    loss = -F.logsigmoid(kind_reward - unkind_reward).mean()
    accuracy = (kind_reward > unkind_reward).float().mean()
    return loss, accuracy


def main():
    torch.manual_seed(7)
    config = MistralConfig(
        vocab_size=20000,
        hidden_size=512,
        intermediate_size=1536,
        num_hidden_layers=5,
        num_attention_heads=8,
        num_key_value_heads=2,
        max_position_embeddings=512,
        sliding_window=None,
    )
    policy = MistralForCausalLM(config).cuda()
    reference = copy.deepcopy(policy).eval()
    optimizer = torch.optim.RMSprop(policy.parameters(), lr=5e-7)
    loader = DataLoader(Prophecies(24, config.vocab_size), batch_size=6, shuffle=True, drop_last=True)

    for step, batch in enumerate(loader):
        batch = [part.cuda() for part in batch]
        loss, accuracy = dpo(policy, reference, batch)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        print(f"step {step}  loss {loss.item():.4f}  accuracy {accuracy.item():.2f}")


if __name__ == "__main__":
    main()
