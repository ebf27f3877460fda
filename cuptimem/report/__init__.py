"""What a trace says, as plain frozen data."""
