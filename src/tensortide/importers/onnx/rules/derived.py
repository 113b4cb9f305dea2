"""Cost rules of derived training steps."""
