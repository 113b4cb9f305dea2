"""Fits of time models to measured samples: pure functions of the samples, the same at every run."""
