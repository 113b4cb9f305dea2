"""Tests of the player of events."""
