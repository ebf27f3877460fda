"""Rooms of csrc, each on its own: C through ctypes or as programs, with traces made by hand."""
