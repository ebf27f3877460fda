"""What cuptimem costs, measured beside its peers in one run: python -m benchmarks --help."""
