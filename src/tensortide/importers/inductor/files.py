"""Files and folders of the compiler's dumps."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import NamedTuple

from tensortide.errors import TraceError

__all__ = ["DUMP", "Dumps", "find_dumps", "holds_dumps"]

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
        what = f"graphs of {len({model for model, _ in found})} models: name the files" if found else f"no {DUMP}"
        raise TraceError(f"{place}: {what}{listed}")
    model = models[0]
    kinds = {kind: found[key][1] for key in found for kind in [key[1]] if key[0] == model}
    weight = found[weights[0], "inference"][1] if weights else None
    return Dumps(kinds["forward" if forwards else "inference"], kinds.get("backward"), weight)
