"""Programs whose memory is accounted for twice. Each is a training that its user would write, in parts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

BATCH = 8


class Training:
    """One model, one optimizer; forward gives what its user keeps until the next step."""

    micro_batches = 1
    kept = "activation"  # what forward's result is, where nothing else has it

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.model = self.make().to(device)
        self.optimizers: list[Any] = self.make_optimizers()

    def make(self) -> nn.Module:
        raise NotImplementedError

    @property
    def models(self) -> list[nn.Module]:
        return [self.model]

    def make_optimizers(self) -> list[Any]:
        return [torch.optim.AdamW(self.model.parameters(), lr=1e-3)]

    def batch(self) -> tuple[torch.Tensor, ...]:
        raise NotImplementedError

    def inputs(self) -> list[torch.Tensor]:
        """What forward passes find, and no module made, beside the batch."""
        return []

    def forward(self, *batch: torch.Tensor) -> Any:
        raise NotImplementedError

    def zero(self) -> None:
        for optimizer in self.optimizers:
            optimizer.zero_grad()

    def backward(self, result: Any) -> None:
        result.backward()

    def update(self) -> None:
        for optimizer in self.optimizers:
            optimizer.step()


# --- transformers -----------------------------------------------------------------------------------


class Attention(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        parts = self.qkv(x).view(batch, length, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(*parts, is_causal=True)
        return self.proj(y.transpose(1, 2).reshape(batch, length, width))


class Block(nn.Module):
    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attn = Attention(width, heads)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
        self.drop = nn.Dropout(dropout)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.drop(self.attn(self.ln_1(x)))
        return x + self.drop(self.mlp(self.ln_2(x)))


class GPT(nn.Module):
    VOCABULARY = 500

    def __init__(self, width: int = 64, layers: int = 3, checkpointed: bool | None = None) -> None:
        super().__init__()
        self.checkpointed = checkpointed  # None: not at all; else whether reentrant
        self.wte, self.wpe = nn.Embedding(self.VOCABULARY, width), nn.Embedding(64, width)
        self.h = nn.ModuleList(Block(width, 4, 0.0 if checkpointed is not None else 0.1) for _ in range(layers))
        self.ln_f = nn.LayerNorm(width)
        self.head = nn.Linear(width, self.VOCABULARY, bias=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.wte(tokens) + self.wpe(torch.arange(tokens.shape[1], device=tokens.device))
        for block in self.h:
            x = block(x) if self.checkpointed is None else checkpoint(block, x, use_reentrant=self.checkpointed)
        return self.head(self.ln_f(x))


class GptAdamW(Training):
    def make(self) -> nn.Module:
        return GPT()

    def batch(self) -> tuple[torch.Tensor, ...]:
        text = torch.randint(GPT.VOCABULARY, (BATCH, 33))
        return tuple(part.to(self.device) for part in (text[:, :-1].contiguous(), text[:, 1:].contiguous()))

    def forward(self, *batch: torch.Tensor) -> torch.Tensor:
        logits = self.model(batch[0])
        return F.cross_entropy(logits.view(-1, logits.shape[-1]), batch[1].view(-1))


class Checkpointing(GptAdamW):
    def make(self) -> nn.Module:
        return GPT(checkpointed=False)


class CheckpointingReentrant(GptAdamW):
    def make(self) -> nn.Module:
        return GPT(checkpointed=True)


class ZerosStay(GptAdamW):
    def zero(self) -> None:
        self.optimizers[0].zero_grad(set_to_none=False)


class GradientAccumulation(GptAdamW):
    micro_batches = 3


class MixedPrecision(GptAdamW):
    def __init__(self, device: torch.device) -> None:
        super().__init__(device)
        self.scaler = torch.amp.GradScaler(device.type, init_scale=1024.0)

    def forward(self, *batch: torch.Tensor) -> torch.Tensor:
        kind = torch.bfloat16 if self.device.type == "cpu" else torch.float16
        with torch.autocast(self.device.type, dtype=kind):
            return super().forward(*batch)

    def backward(self, result: torch.Tensor) -> None:
        self.scaler.scale(result).backward()

    def inputs(self) -> list[torch.Tensor]:
        own = (self.scaler._scale, self.scaler._growth_tracker)
        return [tensor for tensor in own if tensor is not None]

    def update(self) -> None:
        self.scaler.step(self.optimizers[0])
        self.scaler.update()


class TransformerEncoder(Training):
    """PyTorch's own layers, padded inputs, an embedding that is frozen."""

    def make(self) -> nn.Module:
        model = nn.Module()
        model.embedding = nn.Embedding(400, 48)
        layer = nn.TransformerEncoderLayer(48, 4, 96, batch_first=True)
        model.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        model.classify = nn.Linear(48, 5)
        model.embedding.weight.requires_grad_(False)
        return model

    def make_optimizers(self) -> list[Any]:
        return [torch.optim.RMSprop((p for p in self.model.parameters() if p.requires_grad), lr=1e-3, momentum=0.9)]

    def batch(self) -> tuple[torch.Tensor, ...]:
        return torch.randint(400, (BATCH, 20)).to(self.device), torch.randint(5, (BATCH,)).to(self.device)

    def forward(self, *batch: torch.Tensor) -> torch.Tensor:
        features = self.model.encoder(self.model.embedding(batch[0]))
        return F.cross_entropy(self.model.classify(features.mean(1)), batch[1])


# --- as Hugging Face writes GPT-2, by hand: Conv1D, a mask buffer, tied weights ---------------------------


class Conv1D(nn.Module):
    def __init__(self, width_out: int, width_in: int) -> None:
        super().__init__()
        self.nf = width_out
        self.weight = nn.Parameter(torch.empty(width_in, width_out).normal_(std=0.02))
        self.bias = nn.Parameter(torch.zeros(width_out))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        shape = x.shape[:-1] + (self.nf,)
        return torch.addmm(self.bias, x.view(-1, x.size(-1)), self.weight).view(shape)


class GPT2Attention(nn.Module):
    def __init__(self, width: int, positions: int) -> None:
        super().__init__()
        mask = torch.tril(torch.ones((positions, positions), dtype=torch.bool)).view(1, 1, positions, positions)
        self.register_buffer("bias", mask, persistent=False)
        self.num_heads, self.head_dim = 4, width // 4
        self.c_attn, self.c_proj = Conv1D(3 * width, width), Conv1D(width, width)
        self.attn_dropout, self.resid_dropout = nn.Dropout(0.1), nn.Dropout(0.1)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        batch, length, width = hidden.shape
        shape = (batch, length, self.num_heads, self.head_dim)
        query, key, value = (t.view(shape).transpose(1, 2) for t in self.c_attn(hidden).split(width, dim=2))
        weights = torch.matmul(query, key.transpose(-1, -2)) / self.head_dim**0.5
        floor = torch.full([], torch.finfo(weights.dtype).min, dtype=weights.dtype, device=weights.device)
        weights = torch.where(self.bias[:, :, :length, :length], weights, floor)
        weights = self.attn_dropout(F.softmax(weights, dim=-1))
        merged = torch.matmul(weights, value).transpose(1, 2).contiguous().view(batch, length, width)
        return self.resid_dropout(self.c_proj(merged))


class GPT2Block(nn.Module):
    def __init__(self, width: int, positions: int) -> None:
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attn = GPT2Attention(width, positions)
        self.mlp = nn.ModuleDict({"c_fc": Conv1D(4 * width, width), "c_proj": Conv1D(width, 4 * width)})

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        hidden = hidden + self.attn(self.ln_1(hidden))
        x = self.mlp["c_fc"](self.ln_2(hidden))
        x = 0.5 * x * (1.0 + torch.tanh((2 / torch.pi) ** 0.5 * (x + 0.044715 * torch.pow(x, 3.0))))
        return hidden + self.mlp["c_proj"](x)


class GPT2LMHeadModel(nn.Module):
    def __init__(self, width: int = 64, positions: int = 48, vocabulary: int = 600) -> None:
        super().__init__()
        self.transformer = nn.ModuleDict(
            {
                "wte": nn.Embedding(vocabulary, width),
                "wpe": nn.Embedding(positions, width),
                "h": nn.ModuleList(GPT2Block(width, positions) for _ in range(2)),
                "ln_f": nn.LayerNorm(width),
            }
        )
        self.lm_head = nn.Linear(width, vocabulary, bias=False)
        self.lm_head.weight = self.transformer["wte"].weight

    def forward(self, input_ids: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        positions = torch.arange(input_ids.shape[1], device=input_ids.device).unsqueeze(0)
        hidden = self.transformer["wte"](input_ids) + self.transformer["wpe"](positions)
        for block in self.transformer["h"]:
            hidden = block(hidden)
        logits = self.lm_head(self.transformer["ln_f"](hidden))
        shifted = logits[..., :-1, :].contiguous()
        loss = F.cross_entropy(shifted.view(-1, shifted.size(-1)), labels[..., 1:].contiguous().view(-1))
        return {"loss": loss, "logits": logits}


class HuggingFaceLike(Training):
    def make(self) -> nn.Module:
        return GPT2LMHeadModel()

    def batch(self) -> tuple[torch.Tensor, ...]:
        return (torch.randint(600, (4, 48)).to(self.device),)

    def forward(self, *batch: torch.Tensor) -> dict[str, torch.Tensor]:
        return self.model(batch[0], batch[0])

    def backward(self, result: dict[str, torch.Tensor]) -> None:
        result["loss"].backward()


class Transformers(HuggingFaceLike):
    """The package itself, a model of a configuration: no weights are loaded."""

    def make(self) -> nn.Module:
        import transformers

        sizes = transformers.GPT2Config(vocab_size=600, n_positions=48, n_embd=64, n_layer=2, n_head=4)
        return transformers.GPT2LMHeadModel(sizes)

    def forward(self, *batch: torch.Tensor) -> dict[str, torch.Tensor]:
        found = self.model(input_ids=batch[0], labels=batch[0], use_cache=False)
        return {"loss": found.loss, "logits": found.logits}


# --- others -----------------------------------------------------------------------------------------


class Residual(nn.Module):
    def __init__(self, planes_in: int, planes: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(planes_in, planes, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(planes)
        self.conv2 = nn.Conv2d(planes, planes, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(planes)
        self.relu = nn.ReLU(inplace=True)
        self.shortcut = nn.Sequential(nn.Conv2d(planes_in, planes, 1, stride, bias=False), nn.BatchNorm2d(planes))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.relu(self.bn1(self.conv1(x)))
        return self.relu(self.bn2(self.conv2(y)) + self.shortcut(x))


class ResnetSgd(Training):
    def make(self) -> nn.Module:
        return nn.Sequential(
            nn.Conv2d(3, 16, 3, 1, 1, bias=False),
            nn.BatchNorm2d(16),
            nn.ReLU(inplace=True),
            Residual(16, 16, 1),
            Residual(16, 32, 2),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(32, 10),
        )

    def make_optimizers(self) -> list[Any]:
        return [torch.optim.SGD(self.model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)]

    def batch(self) -> tuple[torch.Tensor, ...]:
        return torch.randn(BATCH, 3, 16, 16).to(self.device), torch.randint(10, (BATCH,)).to(self.device)

    def forward(self, *batch: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(self.model(batch[0]), batch[1])


class FrozenLayers(ResnetSgd):
    """A backbone that is not trained, and a new head."""

    def make(self) -> nn.Module:
        model = super().make()
        for parameter in model[:-1].parameters():
            parameter.requires_grad_(False)
        return model

    def make_optimizers(self) -> list[Any]:
        return [torch.optim.Adam((p for p in self.model.parameters() if p.requires_grad), lr=1e-3)]


class LSTM(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(300, 32)
        self.lstm = nn.LSTM(32, 48, num_layers=2, batch_first=True)
        self.head = nn.Linear(48, 300)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.head(self.lstm(self.embedding(tokens))[0])


class LstmAdam(Training):
    def make(self) -> nn.Module:
        return LSTM()

    def make_optimizers(self) -> list[Any]:
        return [torch.optim.Adam(self.model.parameters(), lr=1e-3)]

    def batch(self) -> tuple[torch.Tensor, ...]:
        return torch.randint(300, (BATCH, 24)).to(self.device), torch.randint(300, (BATCH, 24)).to(self.device)

    def forward(self, *batch: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(self.model(batch[0]).transpose(1, 2), batch[1])


class TiedAutoencoder(nn.Module):
    """The decoder is the encoder transposed; both share a module, too."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Linear(256, 64)
        self.decoder = nn.Linear(64, 256)
        self.decoder.weight = nn.Parameter(self.encoder.weight.detach().t())  # one storage, two parameters
        self.norm = nn.LayerNorm(64)
        self.again = self.norm

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.decoder(self.again(torch.relu(self.norm(self.encoder(x)))))


class SharedWeights(Training):
    def make(self) -> nn.Module:
        return TiedAutoencoder()

    def make_optimizers(self) -> list[Any]:
        return [torch.optim.Adagrad(self.model.parameters(), lr=1e-2)]

    def batch(self) -> tuple[torch.Tensor, ...]:
        return (torch.randn(32, 256).to(self.device),)

    def forward(self, *batch: torch.Tensor) -> torch.Tensor:
        return F.mse_loss(self.model(batch[0]), batch[0])


class Inference(ResnetSgd):
    kept = "temporary"  # no graph: a result that its variable holds until the next one

    def make_optimizers(self) -> list[Any]:
        return []

    def batch(self) -> tuple[torch.Tensor, ...]:
        return super().batch()[:1]

    def forward(self, *batch: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            return self.model.eval()(batch[0])

    def backward(self, result: torch.Tensor) -> None:
        pass


class Generator(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.main = nn.Sequential(nn.Linear(16, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 128), nn.Tanh())

    def forward(self, noise: torch.Tensor) -> torch.Tensor:
        return self.main(noise)


class Critic(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.main = nn.Sequential(nn.Linear(128, 64), nn.LeakyReLU(0.2), nn.Linear(64, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.main(x)


class Gan(Training):
    """Two models, two optimizers. The moments are those of the generator's turn; the critic's comes before."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.generator, self.critic = Generator().to(device), Critic().to(device)
        self.optimizers = [
            torch.optim.Adam(self.generator.parameters(), lr=2e-4),
            torch.optim.Adam(self.critic.parameters(), lr=2e-4),
        ]

    @property
    def models(self) -> list[nn.Module]:
        return [self.generator, self.critic]

    def batch(self) -> tuple[torch.Tensor, ...]:
        real = torch.randn(64, 128).to(self.device)
        noise = torch.randn(64, 16).to(self.device)
        fake = self.generator(noise).detach()
        loss = F.softplus(-self.critic(real)).mean() + F.softplus(self.critic(fake)).mean()
        loss.backward()
        self.optimizers[1].step()
        return real, noise

    def forward(self, *batch: torch.Tensor) -> torch.Tensor:
        return F.softplus(-self.critic(self.generator(batch[1]))).mean()

    def update(self) -> None:
        self.optimizers[0].step()


PROGRAMS: dict[str, type[Training]] = {
    "GPT, AdamW": GptAdamW,
    "ResNet, SGD with momentum": ResnetSgd,
    "LSTM, Adam": LstmAdam,
    "mixed precision, GradScaler": MixedPrecision,
    "checkpointing": Checkpointing,
    "checkpointing, reentrant": CheckpointingReentrant,
    "gradient accumulation": GradientAccumulation,
    "GPT-2 as Hugging Face writes it": HuggingFaceLike,
    "inference": Inference,
    "GAN": Gan,
    "Transformer encoder, RMSprop": TransformerEncoder,
    "tied weights, shared module": SharedWeights,
    "frozen layers": FrozenLayers,
    "set_to_none=False": ZerosStay,
    "transformers": Transformers,
}


def steps(
    program: Training, count: int, forward: Callable[..., Any] | None = None
) -> Iterator[tuple[str, tuple[torch.Tensor, ...]]]:
    """Trains; stops at each moment that can be accounted for, with the batch."""
    result = None
    for _ in range(count):
        program.zero()
        for _ in range(program.micro_batches):
            batch = program.batch()
            yield "before forward", batch
            result = (forward or program.forward)(*batch)
            yield "after forward", batch
            program.backward(result)
            yield "after backward", batch
        program.update()
    yield "end", batch
