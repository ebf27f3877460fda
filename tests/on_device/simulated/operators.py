"""python operators.py CHOICE: runs operators on the simulated device and prints what came out, as one JSON object.

Each operator is a function of a device. Where the CPU has it too, it runs there as well, and shapes and types must be
the same; `only` says them for those that it has not.
"""

import itertools
import json
import sys
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.on_device.simulated.ending import leave

Shapes = list[tuple[tuple[int, ...], str]]
Operator = Callable[[str], Any]

ALL: dict[str, dict[str, Operator]] = {}
ONLY: dict[str, Shapes] = {}


def operator(choice: str, only: Shapes | None = None) -> Callable[[Operator], Operator]:
    def register(function: Operator) -> Operator:
        ALL.setdefault(choice, {})[function.__name__] = function
        if only is not None:
            ONLY[function.__name__] = only
        return function

    return register


def shapes(result: Any) -> Shapes:
    if isinstance(result, Tensor):
        return [(tuple(result.shape), str(result.dtype))]
    if isinstance(result, (tuple, list)):
        return [each for part in result for each in shapes(part)]
    return []


def backward(*outputs: Tensor, of: Any) -> tuple[Any, ...]:
    """The outputs and the gradients of a module's parameters."""
    torch.stack([output.float().sum() for output in outputs]).sum().backward()
    return (*outputs, [p.grad for p in of.parameters()] if isinstance(of, nn.Module) else [t.grad for t in of])


# --- what every program uses ---


@operator("basic")
def sort(device: str) -> Any:
    return torch.randn(10000, device=device).sort()


@operator("basic")
def topk(device: str) -> Any:
    return torch.randn(8, 10000, device=device).topk(5)


@operator("basic")
def sort_segments(device: str) -> Any:
    return torch.randn(64, 300, device=device).argsort(dim=1, stable=True)


@operator("basic")
def multinomial(device: str) -> Any:
    return torch.ones(3, 10, device=device).multinomial(3)


@operator("basic")
def cumsum(device: str) -> Any:
    return torch.randn(100000, device=device).cumsum(0)


@operator("basic")
def reductions(device: str) -> Any:
    x = torch.randn(100, 1000, device=device)
    return x.sum(), x.amax(1), x.var(0), x.argmax(), x.logsumexp(1), x.norm(), x.quantile(0.5, dim=1)


@operator("basic", only=[((0,), "torch.float32"), ((0,), "torch.int64"), ((0,), "torch.int64")])
def unique(device: str) -> Any:
    """Nothing on the device computes how many there are."""
    return torch.zeros(100, device=device).unique(return_counts=True, return_inverse=True)[::2] + (
        torch.zeros(0, dtype=torch.int64),
    )


@operator("basic", only=[((0, 1), "torch.int64"), ((0,), "torch.float32")])
def nonzero(device: str) -> Any:
    x = torch.ones(100, device=device)
    return x.nonzero(), x[x > 0]


@operator("basic")
def histogram(device: str) -> Any:
    x = torch.randint(0, 10, (1000,), device=device)
    return torch.bincount(x, minlength=10)[:10], torch.histc(x.float(), 20, 0, 10)


@operator("basic")
def embedding_bag(device: str) -> Any:
    bag = nn.EmbeddingBag(10, 3).to(device)
    return backward(bag(torch.tensor([1, 2, 3]).to(device), torch.tensor([0, 2]).to(device)), of=bag)


@operator("basic")
def embedding(device: str) -> Any:
    table = nn.Embedding(100, 16).to(device)
    return backward(table(torch.arange(50).to(device).view(5, 10)), of=table)


@operator("basic")
def ctc_loss(device: str) -> Any:
    logits = torch.randn(50, 4, 20, device=device, requires_grad=True)
    targets = torch.randint(1, 20, (4, 10)).to(device)
    loss = F.ctc_loss(logits.log_softmax(2), targets, torch.full((4,), 50), torch.full((4,), 10))
    return backward(loss, of=[logits])


@operator("basic")
def ctc_loss_cudnn(device: str) -> Any:
    """In the forms that cuDNN takes: everything in 32 bits, lengths on the host or all on the device."""
    logits = torch.randn(50, 4, 20, device=device, requires_grad=True)
    targets = torch.randint(1, 20, (40,), dtype=torch.int32)
    lengths = [torch.full((4,), length, dtype=torch.int32, device=device) for length in (50, 10)]
    one = F.ctc_loss(logits.log_softmax(2), targets, [50] * 4, [10] * 4)  # type: ignore[arg-type]
    return backward(one, F.ctc_loss(logits.log_softmax(2), targets.to(device), *lengths), of=[logits])


@operator("basic")
def dropout(device: str) -> Any:
    return F.dropout(torch.ones(1000, device=device), 0.5)


@operator("basic")
def compiled_by_nvrtc(device: str) -> Any:
    return torch.special.bessel_j0(torch.ones(5, device=device))


@operator("basic")
def grid_sample(device: str) -> Any:
    x = torch.randn(2, 4, 8, 8, device=device, requires_grad=True)
    theta = torch.randn(2, 2, 3, device=device, requires_grad=True)
    return backward(
        F.grid_sample(x, F.affine_grid(theta, (2, 4, 6, 6), align_corners=True), align_corners=True), of=[x]
    )


@operator("basic")
def quantized_pool(device: str) -> Any:
    return F.max_pool2d(torch.randn(1, 2, 8, 8, device=device), 2, return_indices=True)


@operator("basic")
def text(device: str) -> Any:
    return repr(torch.ones(5, device=device)) and torch.zeros(1)


# --- products ---


@operator("products")
def products(device: str) -> Any:
    a, b, v = (torch.randn(*size, device=device) for size in ((3, 4, 5), (3, 5, 6), (5,)))
    return a @ b, a[0] @ b[0], a[0] @ v, torch.dot(v, v), torch.outer(v, v), torch.baddbmm(a @ b, a, b), a @ v


@operator("products")
def types(device: str) -> Any:
    out = []
    for dtype in (torch.float64, torch.float16, torch.bfloat16, torch.complex64):
        a = torch.ones(16, 16, device=device, dtype=dtype)
        out += [a @ a, torch.addmm(a[0], a, a), torch.bmm(a[None], a[None])]
    return out


@operator("products")
def linear(device: str) -> Any:
    layer = nn.Sequential(nn.Linear(64, 128), nn.GELU(), nn.Linear(128, 32)).to(device)
    return backward(layer(torch.ones(8, 64, device=device)), of=layer)


@operator("products", only=[((8, 32), "torch.float32")])
def fused_epilogue(device: str) -> Any:
    x = torch.ones(8, 64, device=device)
    return torch._addmm_activation(torch.ones(32, device=device), x, torch.ones(64, 32, device=device), use_gelu=True)


@operator("products", only=[((16, 16), "torch.bfloat16"), ((16, 16), "torch.bfloat16")])
def scaled_mm(device: str) -> Any:
    a = torch.zeros(16, 16, device=device).to(torch.float8_e4m3fn)
    one, rows = torch.ones((), device=device), torch.ones(16, 1, device=device)
    return (
        torch._scaled_mm(a, a.t(), one, one, out_dtype=torch.bfloat16),
        torch._scaled_mm(a, a.t(), rows, rows.t(), out_dtype=torch.bfloat16),
    )


@operator("products")
def int_mm(device: str) -> Any:
    a = torch.zeros(32, 32, device=device, dtype=torch.int8)
    return torch._int_mm(a, a)


@operator("products", only=[((4, 16, 32), "torch.bfloat16"), ((64, 32), "torch.bfloat16")])
def grouped_mm(device: str) -> Any:
    a = torch.zeros(4, 16, 16, device=device, dtype=torch.bfloat16)
    b = torch.zeros(4, 16, 32, device=device, dtype=torch.bfloat16)
    ends = torch.tensor([16, 32, 48, 64], dtype=torch.int32, device=device)
    return torch._grouped_mm(a, b), torch._grouped_mm(a.reshape(64, 16), b, offs=ends)


def attention(device: str, dtype: torch.dtype, width: int, back_end: Any, **how: Any) -> Any:
    q, k, v = (torch.zeros(2, 4, 128, width, device=device, dtype=dtype, requires_grad=True) for _ in range(3))
    with torch.nn.attention.sdpa_kernel(back_end):
        return backward(F.scaled_dot_product_attention(q, k, v, **how), of=[q, k, v])


ATTENTION = [((2, 4, 128, 64), "torch.bfloat16")] * 4


@operator("products", only=ATTENTION)
def attention_flash(device: str) -> Any:
    return attention(device, torch.bfloat16, 64, torch.nn.attention.SDPBackend.FLASH_ATTENTION, is_causal=True)


@operator("products", only=ATTENTION)
def attention_efficient(device: str) -> Any:
    return attention(device, torch.bfloat16, 64, torch.nn.attention.SDPBackend.EFFICIENT_ATTENTION)


@operator("products", only=ATTENTION)
def attention_cudnn(device: str) -> Any:
    return attention(device, torch.bfloat16, 64, torch.nn.attention.SDPBackend.CUDNN_ATTENTION, is_causal=True)


@operator("products")
def attention_math(device: str) -> Any:
    return attention(device, torch.float32, 64, torch.nn.attention.SDPBackend.MATH, dropout_p=0.1)


@operator("products")
def attention_chosen(device: str) -> Any:
    every = list(torch.nn.attention.SDPBackend.__members__.values())[1:]
    return [attention(device, d, w, every) for d in (torch.float32, torch.bfloat16) for w in (64, 128)]


@operator("products")
def encoder(device: str) -> Any:
    """The inference path works with nested tensors."""
    layer = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True).to(device).eval()
    with torch.no_grad():
        return layer(torch.ones(2, 7, 32, device=device))


@operator("products", only=[((128, 64), "torch.float16"), ((128, 64), "torch.bfloat16")])
def semi_structured(device: str) -> Any:
    """Two of four elements: cuSPARSELt."""
    out = []
    for dtype in (torch.float16, torch.bfloat16):
        dense = torch.ones(128, 128, device=device, dtype=dtype)
        packed = torch._cslt_compress(dense)
        out.append(torch._cslt_sparse_mm(packed, torch.ones(128, 64, device=device, dtype=dtype)))
    return out


# --- cuDNN ---


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(4, 8, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(8)
        self.groups = nn.Conv2d(8, 8, 3, stride=2, groups=4)
        self.up = nn.ConvTranspose2d(8, 4, 2, stride=2)

    def forward(self, x: Tensor) -> Tensor:
        x = F.max_pool2d(torch.relu(self.norm(self.first(x))), 2)
        return F.adaptive_avg_pool2d(self.up(self.groups(x)), 2)


def convolutions() -> Iterator[tuple[str, Operator]]:
    """Every combination of cuDNN on and off, benchmarks, layout and type."""
    for use, benchmark, last, dtype in itertools.product(
        (True, False), (False, True), (False, True), (torch.float32, torch.float16, torch.bfloat16)
    ):

        def call(device: str, use=use, benchmark=benchmark, last=last, dtype=dtype) -> Any:  # type: ignore[no-untyped-def]
            with torch.backends.cudnn.flags(enabled=use, benchmark=benchmark):
                format_ = torch.channels_last if last else torch.contiguous_format
                model = Block().to(device, dtype, memory_format=format_)
                x = torch.ones(2, 4, 16, 16, device=device, dtype=dtype).contiguous(memory_format=format_)
                return backward(model(x), of=model)

        yield f"convolution_{use}_{benchmark}_{last}_{str(dtype)[6:]}", call


for _name, _call in convolutions():
    _call.__name__ = _name
    operator("cudnn")(_call)


@operator("cudnn")
def volumes(device: str) -> Any:
    model = nn.Sequential(nn.Conv3d(2, 3, 3), nn.ConvTranspose3d(3, 2, 3)).to(device)
    return backward(model(torch.ones(1, 2, 5, 5, 5, device=device)), of=model)


@operator("cudnn")
def lines(device: str) -> Any:
    model = nn.Sequential(nn.Conv1d(2, 3, 3, dilation=2), nn.BatchNorm1d(3)).to(device)
    return backward(model(torch.ones(2, 2, 32, device=device)), of=model)


@operator("cudnn")
def inference(device: str) -> Any:
    model = Block().to(device).eval()
    with torch.no_grad():
        fused = torch.cudnn_convolution_relu if device == "cuda" else None
        x, w = torch.ones(1, 4, 8, 8, device=device), torch.ones(8, 4, 3, 3, device=device)
        b = torch.ones(8, device=device)
        once = fused(x, w, b, [1, 1], [1, 1], [1, 1], 1) if fused else F.relu(F.conv2d(x, w, b, padding=1))
        return model(torch.ones(2, 4, 16, 16, device=device)), once


def recurrent() -> Iterator[tuple[str, Operator]]:
    kinds: dict[str, tuple[type[nn.RNNBase], dict[str, Any]]] = {
        "lstm": (nn.LSTM, {"num_layers": 2, "bidirectional": True, "dropout": 0.1}),
        "lstm_projected": (nn.LSTM, {"proj_size": 8}),
        "gru": (nn.GRU, {"num_layers": 2}),
        "gru_plain": (nn.GRU, {"bias": False, "batch_first": True}),
        "tanh": (nn.RNN, {"nonlinearity": "tanh"}),
        "relu": (nn.RNN, {"nonlinearity": "relu", "bidirectional": True}),
    }
    for (name, (kind, how)), use in itertools.product(kinds.items(), (True, False)):

        def call(device: str, kind=kind, how=how, use=use) -> Any:  # type: ignore[no-untyped-def]
            with torch.backends.cudnn.flags(enabled=use):
                model = kind(16, 32, **how).to(device)
                return backward(model(torch.ones(5, 3, 16, device=device))[0], of=model)

        yield f"{name}_{use}", call


for _name, _call in recurrent():
    _call.__name__ = _name
    operator("cudnn")(_call)


@operator("cudnn")
def packed_lstm(device: str) -> Any:
    model = nn.LSTM(16, 32).to(device)
    packed = nn.utils.rnn.pack_padded_sequence(torch.ones(5, 3, 16, device=device), torch.tensor([5, 3, 2]))
    return backward(model(packed)[0].data, of=model)


# --- linear algebra, transforms, sparse matrices ---


def matrix(device: str, *size: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.eye(size[-1], device=device, dtype=dtype).expand(*size[:-2], size[-1], size[-1]).contiguous()


@operator("linalg")
def svd(device: str) -> Any:
    return [torch.linalg.svd(matrix(device, *size), full_matrices=False) for size in ((8, 8), (3, 8, 8), (3, 40, 40))]


@operator("linalg", only=[((4, 8, 8), "torch.float32"), ((4, 8), "torch.float32"), ((4, 8, 8), "torch.float32")] * 3)
def svd_drivers(device: str) -> Any:
    return [torch.linalg.svd(matrix(device, 4, 8, 8), driver=driver) for driver in ("gesvd", "gesvdj", "gesvda")]


@operator("linalg")
def solve(device: str) -> Any:
    out = []
    for dtype in (torch.float32, torch.float64, torch.complex64, torch.complex128):
        a = matrix(device, 8, 8, dtype=dtype)
        out += [torch.linalg.solve(a, a), torch.linalg.inv(a), torch.linalg.det(a), torch.linalg.lu_factor(a)]
    return out


@operator("linalg")
def cholesky(device: str) -> Any:
    a, batch = matrix(device, 8, 8), matrix(device, 5, 8, 8)
    return torch.linalg.cholesky(a), torch.linalg.cholesky(batch), torch.cholesky_solve(a, a), torch.cholesky_inverse(a)


@operator("linalg")
def qr(device: str) -> Any:
    return [torch.linalg.qr(matrix(device, *size)) for size in ((8, 8), (5, 8, 8))]


@operator("linalg")
def eigen(device: str) -> Any:
    a = matrix(device, 8, 8)
    batch = matrix(device, 5, 8, 8)
    return torch.linalg.eigh(a), torch.linalg.eigh(batch), torch.linalg.eigvalsh(a)


@operator("linalg")
def ldl(device: str) -> Any:
    return torch.linalg.ldl_factor(matrix(device, 8, 8))


@operator("linalg")
def triangular(device: str) -> Any:
    a = matrix(device, 3, 8, 8)
    return torch.linalg.solve_triangular(a, a, upper=True), torch.linalg.householder_product(a[0], a[0][0])


@operator("linalg")
def least_squares(device: str) -> Any:
    a = matrix(device, 8, 8)
    return torch.linalg.lstsq(a, a, driver="gels").solution


@operator("linalg")
def fourier(device: str) -> Any:
    x = torch.ones(4, 64, device=device)
    return (
        torch.fft.fft(x),
        torch.fft.rfft2(x),
        torch.fft.irfft(torch.fft.rfft(x)),
        torch.stft(x, 16, return_complex=True, window=torch.ones(16, device=device)),
    )


def rows(device: str) -> Tensor:
    return torch.eye(6).to_sparse_csr().to(device)


@operator("linalg")
def sparse_products(device: str) -> Any:
    coo, csr, dense = torch.eye(6).to_sparse().to(device), rows(device), torch.ones(6, 4, device=device)
    return torch.sparse.mm(coo, dense), csr @ dense, csr @ dense[:, 0], torch.sparse.addmm(dense, coo, dense)


@operator("linalg")
def sparse_results(device: str) -> Any:
    csr = rows(device)
    return (csr @ csr).values(), torch.sparse.sampled_addmm(csr, csr.to_dense(), csr.to_dense(), beta=1).values()


@operator("linalg", only=[((12,), "torch.float32")])
def sparse_sum(device: str) -> Any:
    """As many elements as both have: nothing computes which they share."""
    return (rows(device) + rows(device)).values()


def run(choice: str) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for name, call in ALL[choice].items():
        try:
            expected = ONLY[name] if name in ONLY else shapes(call("cpu"))
            torch.cuda.synchronize()
            got = shapes(call("cuda"))
            found[name] = {"same": got == expected and len(got) > 0, "got": got, "expected": expected}
        except Exception as error:  # whatever PyTorch raises is the finding
            found[name] = {"same": False, "error": f"{type(error).__name__}: {error}"[:400]}
    return found


if __name__ == "__main__":
    torch.manual_seed(0)
    print(json.dumps(run(sys.argv[1])))
    leave()
