"""``tensortide formulas``: costs as formulas, and the questions they answer."""
