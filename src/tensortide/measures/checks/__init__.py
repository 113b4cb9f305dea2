"""Checks: assertions over the metrics of a step, in words, with baselines that are accepted on purpose."""
