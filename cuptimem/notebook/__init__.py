"""What notebooks show, and the cell magic %%cuptimem. Nothing of it is loaded before a notebook asks."""
