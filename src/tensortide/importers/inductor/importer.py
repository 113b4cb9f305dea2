"""Dumps of PyTorch's compiler as a row of the table of importers, and where they lie in a folder."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, NamedTuple

from tensortide.errors import TraceError
from tensortide.importers.imported import Imported
from tensortide.importers.table import Importer, Options
from tensortide.importers.textfile import find_file, head

DUMP = "fx_graph_transformed.py"
_FOLDER = re.compile(r"model_*(?P<model>\d+)_(?P<kind>forward|backward|inference)_(?P<number>\d+)(?:\.(?P<run>\d+))?")
_FORWARD = "fx_graph_transformed_forward.py"


class Dumps(NamedTuple):
    """The dumps of one step."""

    forward: Path
    backward: Path | None
    weight: Path | None


def holds_dumps(folder: Path, *, most: int) -> bool:
    """Look for dumps as ``find_dumps`` does, among the first ``most`` entries below ``folder``."""
    if (folder / _FORWARD).is_file():
        return True
    for place, folders, files in os.walk(folder):
        if DUMP in files and _FOLDER.fullmatch(Path(place).name):
            return True
        most -= len(folders) + len(files)
        if most < 0:
            break
    return False


def find_dumps(folder: str | os.PathLike[str]) -> Dumps:
    """The dumps in ``folder``: ``fx_graph_transformed_{forward,backward,weight}.py`` in it, or the files in the folders
    that the compiler makes (``model__0_forward_1.0``), at any depth. Of a graph that was compiled several times it is
    the last.

    Raises:
        TraceError: there is none, or there are graphs of several models (graph breaks): the message lists them.
    """
    place = Path(folder)
    plain = {kind: place / f"fx_graph_transformed_{kind}.py" for kind in ("forward", "backward", "weight")}
    existing = {kind: path for kind, path in plain.items() if path.is_file()}
    if "forward" in existing:
        return Dumps(existing["forward"], existing.get("backward"), existing.get("weight"))
    found: dict[tuple[int, str], tuple[tuple[int, int], Path]] = {}
    for path in sorted(place.rglob(DUMP)):
        if match := _FOLDER.fullmatch(path.parent.name):
            key, order = (int(match["model"]), match["kind"]), (int(match["number"]), int(match["run"] or 0))
            found[key] = max(found.get(key, (order, path)), (order, path))
    forwards = [model for model, kind in found if kind == "forward"]
    others = [model for model, kind in found if kind == "inference"]
    models, weights = (forwards, others) if forwards else (others, [])
    if len(models) != 1 or len(weights) > 1:
        listed = "".join(f"\n  {path}" for _, path in found.values())
        count = len({model for model, _ in found})
        together = "(--compiled captures all graphs of a workload or script together)"
        what = f"graphs of {count} models: name the files of one {together}" if found else f"no {DUMP}"
        raise TraceError(f"{place}: {what}{listed}")
    model = models[0]
    kinds = {kind: found[key][1] for key in found for kind in [key[1]] if key[0] == model}
    weight = found[weights[0], "inference"][1] if weights else None
    return Dumps(kinds["forward" if forwards else "inference"], kinds.get("backward"), weight)


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
    from tensortide.importers.inductor.importer import holds_dumps

    return holds_dumps(path, most=_ENTRIES)


def _read(path: Path, options: DumpOptions) -> Imported:
    from tensortide.importers.inductor.importer import find_dumps
    from tensortide.importers.inductor.read import read_dumps

    if not path.is_dir():
        return read_dumps(path, options.backward, options.weight, bind=options.symbols)
    if options.backward is not None or options.weight is not None:
        raise TraceError(f"{path} is a folder: name the dump of the forward graph too")
    return read_dumps(*find_dumps(path), bind=options.symbols)


IMPORTER = Importer(
    "inductor", "a dump of PyTorch's compiler (fx_graph_transformed.py, or its folder)", _sniff, _read, DumpOptions
)
