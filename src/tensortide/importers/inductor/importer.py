"""Dumps of PyTorch's compiler as a row of the table of importers, and where they lie in a folder."""

from __future__ import annotations

import itertools
import os
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, NamedTuple

from tensortide.errors import TraceError
from tensortide.importers.imported import Imported
from tensortide.importers.table import Importer, SizedOptions
from tensortide.importers.textfile import find_file, head

DUMP = "fx_graph_transformed.py"
_FOLDER = re.compile(r"model_*(?P<model>\d+)_(?P<kind>forward|backward|inference)_(?P<number>\d+)(?:\.(?P<run>\d+))?")
_FORWARD = "fx_graph_transformed_forward.py"


class Dumps(NamedTuple):
    """The dumps of one step: forward graphs in the order in which they ran, the backward graph of each or None, and the
    optimizer's."""

    forward: tuple[Path, ...]
    backward: tuple[Path | None, ...]
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

    The compiler numbers graphs as it compiles them, so forward graphs are in the order of their numbers, and a graph
    without gradients that follows all others is the optimizer's.

    Raises:
        TraceError: there is none, or there are graphs of several optimizers: the message lists them.
    """
    place = Path(folder)
    plain = {kind: place / f"fx_graph_transformed_{kind}.py" for kind in ("forward", "backward", "weight")}
    existing = {kind: path for kind, path in plain.items() if path.is_file()}
    if "forward" in existing:
        return Dumps((existing["forward"],), (existing.get("backward"),), existing.get("weight"))
    found: dict[tuple[int, str], tuple[tuple[int, int], Path]] = {}
    for path in sorted(place.rglob(DUMP)):
        if match := _FOLDER.fullmatch(path.parent.name):
            key, order = (int(match["model"]), match["kind"]), (int(match["number"]), int(match["run"] or 0))
            found[key] = max(found.get(key, (order, path)), (order, path))
    if not found:
        raise TraceError(f"{place}: no {DUMP}")
    trained = sorted((order, model) for (model, kind), (order, _) in found.items() if kind == "forward")
    others = sorted((order, model) for (model, kind), (order, _) in found.items() if kind == "inference")
    if not trained:
        return Dumps(tuple(found[model, "inference"][1] for _, model in others), (None,) * len(others), None)
    last = max(order for (_, kind), (order, _) in found.items() if kind != "inference")
    weights = [found[model, "inference"][1] for order, model in others if order > last or len(others) == 1]
    if len(weights) != len(others) or not _grow(weights):
        listed = "".join(f"\n  {found[model, 'inference'][1]}" for _, model in others)
        raise TraceError(
            f"{place}: which of {len(others)} graphs without gradients is the optimizer's is not clear: name the files "
            f"of one step (--compiled captures all graphs of a workload or script together){listed}"
        )
    backwards = tuple(found[model, "backward"][1] if (model, "backward") in found else None for _, model in trained)
    forwards = tuple(found[model, "forward"][1] for _, model in trained)
    return Dumps(forwards, backwards, weights[-1] if weights else None)


def _grow(graphs: Sequence[Path]) -> bool:
    """True if each graph takes all that the one before it does, as that of an optimizer does whose state exists now."""
    from tensortide.importers.inductor.syntax import parse
    from tensortide.importers.textfile import read_text

    taken = [Counter(str(one.type) for one in parse(read_text(path)).parameters) for path in graphs]
    return all(before <= after for before, after in itertools.pairwise(taken))


_DUMP = re.compile(
    rb"(?:[ \t]*(?:#.*|(?:import|from) .*)?\r?\n)*"
    rb"class (?:<lambda>|\w+)\((?:[\w.]*\.)?Module\):.*\r?\n(?:[ \t]*(?:#.*)?\r?\n)*[ \t]+def forward\(self"
)
_TYPE = re.compile(rb"[a-z]\w*\[[^\[\]\n]*\]")
_ENTRIES = 20_000
"""Of a folder, at any depth, that are looked at for a dump."""


@dataclass(frozen=True)
class DumpOptions(SizedOptions):
    """Further graphs of the step whose forward graph is read, and ``symbols``: values of its symbolic dimensions."""

    backward: Annotated[Path | None, "The dump of the backward graph."] = None
    weight: Annotated[Path | None, "The dump of the optimizer's graph."] = None


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
