"""How often answers are right, judged by what never sees cuptimem."""
