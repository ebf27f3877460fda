"""cuptimem: the memory profiler for PyTorch."""
