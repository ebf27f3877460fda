"""Real programs, most with PyTorch, recorded on the CPU: what is recorded, and what the program notices of it."""
