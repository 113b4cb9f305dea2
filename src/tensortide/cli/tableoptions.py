"""The options that go with TensorFlow graph files."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

__all__ = ["FileOptions", "TableOptions"]


@Parameter(name="*")
@dataclass(frozen=True)
class FileOptions:
    """How a TensorFlow graph file is read: which of its ops, and what its sizes are called."""

    preset: Annotated[
        str,
        Parameter(
            name="--preset",
            show_default=False,
            help="Of a graph file: drop what the catamount table drops of word_lm, word2vec or resnet.",
        ),
    ] = "none"
    drop: Annotated[
        tuple[str, ...],
        Parameter(
            name="--drop",
            negative=(),
            show_default=False,
            help="Of a graph file: a pattern of op names that the catamount table drops.",
        ),
    ] = ()
    bind: Annotated[
        tuple[str, ...],
        Parameter(
            name="--bind",
            negative=(),
            show_default=False,
            help="Sizes of a graph file by name: PATTERN=b,s,2*h names the dims of inputs and variables, or constants.",
        ),
    ] = ()


@Parameter(name="*")
@dataclass(frozen=True)
class TableOptions(FileOptions):
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
