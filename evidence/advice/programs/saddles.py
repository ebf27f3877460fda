"""Saddles of a collection, each beside those most like it: pictures become vectors, vectors become neighbours."""

import torch
from transformers import ViTConfig, ViTModel


def the_collection(count, side):
    return torch.rand(count, 3, side, side).cuda()


def embed(model, pictures, rows):
    vectors = []
    for start in range(0, len(pictures), rows):
        out = model(pixel_values=pictures[start : start + rows])
        vectors.append(out.last_hidden_state)
    return torch.cat(vectors)


def likeness(some, all_of_them):
    """Distances of every token mean, one row for each of some."""
    n, m = len(some), len(all_of_them)
    left = some.unsqueeze(1).repeat(1, m, 1)
    right = all_of_them.unsqueeze(0).repeat(n, 1, 1)
    return (left - right).abs().mean(dim=-1)


def main(count=320, side=160, rows=64):
    config = ViTConfig(
        image_size=side, patch_size=16, hidden_size=256, num_hidden_layers=6, num_attention_heads=8,
        intermediate_size=1024, attn_implementation="eager",
    )
    model = ViTModel(config, add_pooling_layer=False).cuda()
    model.eval()
    pictures = the_collection(count, side)
    tokens = embed(model, pictures, rows)
    vectors = tokens[:, 1:].mean(dim=1)
    table = likeness(vectors[:160], vectors)
    near = table.topk(4, largest=False)
    for index in range(0, 160, 40):
        print(index, near.values[index].tolist())


if __name__ == "__main__":
    main()
