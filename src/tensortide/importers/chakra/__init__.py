"""Chakra execution traces (``.et``): nodes of compute and communication that depend on each other, read and written."""
