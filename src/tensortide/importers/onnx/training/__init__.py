"""Derivation of a training step from an inference model: gradients by rules of our own, and an optimizer."""
