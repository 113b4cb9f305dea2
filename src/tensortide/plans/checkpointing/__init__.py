"""Recomputation planned ahead: schedules for whoever knows the whole step, to compare online policies with."""
