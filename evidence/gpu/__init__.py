"""What only a real GPU can tell: see compare_real.py."""
