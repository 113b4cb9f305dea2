"""Time models, one file each, and their parts. ``timing/ladder.py`` has the table of them."""
