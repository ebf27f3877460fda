"""How reports look: a file per format. views.py says what is shown, the others how."""
