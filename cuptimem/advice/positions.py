"""Moments of a device, as lives of blocks count them."""

GAP = 1 << 12  # between two events: csrc/analysis/lives.h
FOREVER = 1 << 62
