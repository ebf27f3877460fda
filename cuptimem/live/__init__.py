"""What a running program's memory is made of now: its trace is followed while it is written (docs/live.md)."""
