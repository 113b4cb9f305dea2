"""Renderers: each turns the blocks of any Document into one medium."""
