"""TensorFlow MetaGraphs as a row of the table of importers."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from tensortide.importers.imported import Imported
from tensortide.importers.protobuf import WireError, read_varint
from tensortide.importers.table import Importer, SizedOptions
from tensortide.importers.textfile import head

if TYPE_CHECKING:
    from tensortide.cost.differences import Comparison
    from tensortide.cost.table import Table

_FIRST, _SECOND, _FIFTH = b"\x0a", b"\x12", b"\x2a"
"""Tags of fields with a length, by number."""


@dataclass(frozen=True)
class MetaGraphOptions(SizedOptions):
    """Options of reading a MetaGraph: the ops to read, the names of its sizes, and ``symbols``, values of these names.

    With a ``preset`` or ``drop`` all ops but these are read, otherwise those that the training step runs.
    """

    preset: Annotated[str, "Drop what the catamount table drops of word_lm, word2vec or resnet."] = "none"
    drop: Annotated[tuple[str, ...], "A pattern of op names that the catamount table drops."] = ()
    bind: Annotated[
        tuple[str, ...], "Sizes by name: PATTERN=b,s,2*h names the dims of inputs and variables, or constants."
    ] = ()


def _sniff(path: Path) -> bool:
    """Follow the first fields of the first message down to a name: that of a node or an op, or the version."""
    start = head(path)
    at, end = 0, 1 << 40
    while start[at : at + 1] in (_FIRST, _SECOND, _FIFTH):
        try:
            length, begin = read_varint(start, at + 1)
        except WireError:
            return False
        if not length:  # an empty message: the next field
            at = begin
            continue
        if begin + length > end:
            return False
        text = start[begin : begin + length]
        if start[at : at + 1] == _FIFTH and re.match(rb"\d+\.\d+", text):
            return True
        if at and text.isascii() and text.decode().isprintable():
            return _SECOND in start[:begin] or start[begin + length : begin + length + 1] == _SECOND
        at, end = begin, begin + length
    return False


def _import(path: Path, options: MetaGraphOptions, catamount: bool) -> Imported:
    from tensortide.importers.tensorflow.bindings import bindings
    from tensortide.importers.tf1.load import import_graph

    return import_graph(
        path,
        preparation="catamount" if catamount else "default",
        preset=options.preset,
        drop=options.drop,
        bind=bindings(options.bind),
        settings=options.symbols,
    )


def _read(path: Path, options: MetaGraphOptions) -> Imported:
    return _import(path, options, options.preset != "none" or bool(options.drop))


def _catamount(path: Path, options: MetaGraphOptions, strict: bool) -> Table:
    """Price all ops of the file but what the preset and the patterns drop. An op without a rule costs nothing here."""
    from tensortide.importers.tf1.catamount import NOT_PARAMETERS, tabulate

    del strict
    step = _import(path, options, True)
    return tabulate(step.graph, step.symbols, skip_parameters=NOT_PARAMETERS.get(options.preset, ""))


def _both(path: Path, options: MetaGraphOptions, strict: bool) -> Comparison:
    """Compare that table with ours of the training step, to which not all bindings need apply."""
    from tensortide.cost import count
    from tensortide.importers.tf1.catamount import compare

    theirs, bind = _catamount(path, options, strict), options.bind
    if bind:
        labels = [op.label for op in _import(path, MetaGraphOptions(), False).graph.ops]
        bind = tuple(text for text in bind if any(re.fullmatch(text.rpartition("=")[0], label) for label in labels))
    step = _import(path, replace(options, bind=bind), False)
    return compare(theirs, count(step.graph, strict=strict), step.symbols)


IMPORTER = Importer(
    "tf1", "a TensorFlow graph (.meta or .pb, also .gz)", _sniff, _read, MetaGraphOptions,
    tables={"catamount": _catamount, "both": _both},
)  # fmt: skip
