"""Workloads whose memory others measured and published: models with random weights, and steps as their scripts run."""
