"""The options that go with TensorFlow graph files."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

__all__ = ["TableOptions"]


@Parameter(name="*")
@dataclass(frozen=True)
class TableOptions:
    """Which costs of a TensorFlow graph file are shown, and of which of its ops."""

    table: Annotated[
        Literal["tensortide", "catamount", "both"],
        Parameter(
            name="--table",
            show_default=False,
            help="Of a TensorFlow graph file: our costs (default), Catamount's, or both and why they differ.",
        ),
    ] = "tensortide"
    ops: Annotated[
        bool, Parameter(name="--ops", negative=(), show_default=False, help="Of a graph file: a row for every op.")
    ] = False
    csv: Annotated[
        Path | None, Parameter(name="--csv", show_default=False, help="Of a graph file: write a row per op as CSV.")
    ] = None
