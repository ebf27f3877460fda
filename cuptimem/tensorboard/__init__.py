"""cuptimem in TensorBoard: scalars per step, and a page of its own.

While training: handler.py writes, with scalars.py and data.py. In TensorBoard's process: loader.py is its entry point,
plugin.py answers requests, files.py finds and reads what was written, comparison.py puts two of them side by side.
"""
