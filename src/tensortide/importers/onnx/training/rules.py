"""The rules by which ops go backward: one per op, in a table."""

from __future__ import annotations

from tensortide.importers.onnx.training import elements, products, shaping
from tensortide.importers.onnx.training.reverse import Rule

BACKWARD: dict[str, Rule] = {**elements.RULES, **shaping.RULES, **products.RULES}
"""Rules by op name. Ops whose results have no gradient (``replay.STOPS``) have none."""
