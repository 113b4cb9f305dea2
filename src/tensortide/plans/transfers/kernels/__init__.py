"""Compiled functions of plans with transfers: idle intervals, what moves when, and the event rules."""
