"""PyTorch's CUDA build on the simulated device."""
