"""Time models, one file each: from physics alone to the exact shape. ``predict`` asks them in this order of trust."""
