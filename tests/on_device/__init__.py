"""PyTorch's CUDA build on the simulated device, and what only a real GPU can answer."""
