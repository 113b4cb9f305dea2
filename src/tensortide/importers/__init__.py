"""Readers of other tools' files: anything to a Graph."""
