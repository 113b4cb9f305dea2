"""A compiled handler for ordinary ops under a live budget: built on first use, in the background."""
