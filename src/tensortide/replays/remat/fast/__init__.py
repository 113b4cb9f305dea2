"""The compiled engine. Its modules are imported when a run needs them."""
