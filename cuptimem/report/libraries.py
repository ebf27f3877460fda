"""Libraries by the names that people know them by."""

import os
import re

# The file's name in lower case, up to ".so".
_NAMES = {
    "_pywrap_tensorflow_internal": "TensorFlow",
    "libc10": "PyTorch",
    "libc10_cuda": "PyTorch",
    "libcaffe2_nvrtc": "PyTorch",
    "libcublas": "cuBLAS",
    "libcublaslt": "cuBLASLt",
    "libcuda": "CUDA driver",
    "libcudart": "CUDA runtime",
    "libcudf": "cuDF",
    "libcudnn": "cuDNN",
    "libcufft": "cuFFT",
    "libcufftw": "cuFFT",
    "libcufile": "cuFile",
    "libcupti": "CUPTI",
    "libcurand": "cuRAND",
    "libcusolver": "cuSOLVER",
    "libcusolvermg": "cuSOLVER",
    "libcusparse": "cuSPARSE",
    "libcusparselt": "cuSPARSELt",
    "libcutensor": "cuTENSOR",
    "libcutensormg": "cuTENSOR",
    "libffi": "ctypes",
    "libnccl": "NCCL",
    "libnvidia-ml": "NVML",
    "libnvinfer": "TensorRT",
    "libnvjitlink": "nvJitLink",
    "libnvjpeg": "nvJPEG",
    "libnvrtc": "NVRTC",
    "libonnxruntime": "ONNX Runtime",
    "libpython": "Python",
    "librmm": "RMM",
    "libtorch": "PyTorch",
    "libtriton": "Triton",
    "libucm": "UCX",
    "libucp": "UCX",
    "libucs": "UCX",
    "libuct": "UCX",
    "python": "Python",
    "xla_extension": "XLA",
}
# Families of libraries: libtorch_cuda, libcudnn_ops, ...
_FAMILIES = {
    "libtorch_": "PyTorch",
    "libcudnn_": "cuDNN",
    "libjax_": "JAX",
    "libnpp": "NPP",
    "libnvinfer_": "TensorRT",
    "libnvshmem": "NVSHMEM",
    "libonnxruntime_": "ONNX Runtime",
    "libtensorflow_": "TensorFlow",
}


def library_name(file: str) -> str:
    """cuBLAS for libcublas.so.13, PyTorch for libc10_cuda.so; a file that nobody knows keeps its name, "" stays ""."""
    name = os.path.basename(file)
    stem = re.split(r"\.so(?:\.|$)", name, maxsplit=1)[0].lower()
    stem = re.sub(r"(?:3(?:\.\d+t?)?|-[0-9a-f]{8})$", "", stem)  # libpython3.11; copies that a wheel brings
    if stem in _NAMES:
        return _NAMES[stem]
    return next((known for family, known in _FAMILIES.items() if stem.startswith(family)), name)
