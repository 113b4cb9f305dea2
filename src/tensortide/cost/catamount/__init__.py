"""The cost table of Catamount (2019) for TensorFlow 1 graphs, reproduced as it was, and how it differs from ours."""

from __future__ import annotations

from tensortide.cost.catamount.compare import Comparison, Difference, Reason, compare
from tensortide.cost.catamount.table import NOT_PARAMETERS, tabulate

__all__ = ["NOT_PARAMETERS", "Comparison", "Difference", "Reason", "compare", "tabulate"]
