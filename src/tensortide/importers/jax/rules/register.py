"""Registration of the rules of JAX's primitives."""

from __future__ import annotations

from tensortide.cost.registry import Vocabulary

jax = Vocabulary("jax")
