"""Reading living Python objects without running the program's code."""
