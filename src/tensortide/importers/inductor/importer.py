"""Dumps of PyTorch's compiler as a row of the table of importers."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from tensortide.errors import TraceError
from tensortide.importers.imported import Imported
from tensortide.importers.table import Importer, Options
from tensortide.importers.textfile import find_file, head

__all__ = ["IMPORTER", "DumpOptions"]

_DUMP = re.compile(
    rb"(?:[ \t]*(?:#.*|(?:import|from) .*)?\r?\n)*"
    rb"class (?:<lambda>|\w+)\((?:[\w.]*\.)?Module\):.*\r?\n(?:[ \t]*(?:#.*)?\r?\n)*[ \t]+def forward\(self"
)
_TYPE = re.compile(rb"[a-z]\w*\[[^\[\]\n]*\]")
_ENTRIES = 20_000
"""Of a folder, at any depth, that are looked at for a dump."""


@dataclass(frozen=True)
class DumpOptions(Options):
    """Further graphs of the step whose forward graph is read, and ``symbols``: values of its symbolic dimensions."""

    backward: Annotated[Path | None, "The dump of the backward graph."] = None
    weight: Annotated[Path | None, "The dump of the optimizer's graph."] = None
    symbols: Mapping[str, int] = field(default_factory=dict)


def _sniff(path: Path) -> bool:
    if not path.is_dir():
        start = head(path)
        return _DUMP.match(start) is not None and _TYPE.search(start) is not None
    if find_file(path, ["kernels.config"]) is not None:
        return False
    from tensortide.importers.inductor.files import holds_dumps

    return holds_dumps(path, most=_ENTRIES)


def _read(path: Path, options: DumpOptions) -> Imported:
    from tensortide.importers.inductor.files import find_dumps
    from tensortide.importers.inductor.read import read_dumps

    if not path.is_dir():
        return read_dumps(path, options.backward, options.weight, bind=options.symbols)
    if options.backward is not None or options.weight is not None:
        raise TraceError(f"{path} is a folder: name the dump of the forward graph too")
    return read_dumps(*find_dumps(path), bind=options.symbols)


IMPORTER = Importer(
    "inductor", "a dump of PyTorch's compiler (fx_graph_transformed.py, or its folder)", _sniff, _read, DumpOptions
)
