"""The cost table of Catamount (2019) for TensorFlow 1 graphs, reproduced as it was, and how it differs from ours."""

from __future__ import annotations

from tensortide.importers.tf1.catamount.compare import Reason, compare
from tensortide.importers.tf1.catamount.rules import NOT_PARAMETERS, tabulate

__all__ = ["NOT_PARAMETERS", "Reason", "compare", "tabulate"]
