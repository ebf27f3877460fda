"""Reports compared with accounts that never see cuptimem."""
