"""One recording of this process: what is installed, when it starts and stops, and the windows that share it."""
