"""The simulated device, and the recorder's driver level on it, with small programs instead of PyTorch."""
