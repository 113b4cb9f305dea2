"""Calibration of the machine at hand: its ceilings and small steps that cover the families of ops, measured."""
