"""Placements searched and compared: one net on one cluster, sweeps of them, the configuration files of others."""
