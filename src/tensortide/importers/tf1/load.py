"""A graph file as a Graph: read, sized, converted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from tensortide.collector import no_collection
from tensortide.expr import Expr
from tensortide.importers.imported import Imported
from tensortide.importers.symbols import require_symbols
from tensortide.importers.tensorflow.building.convert import graph_of_program
from tensortide.importers.tensorflow.read import Preparation, read_program


@no_collection()
def import_graph(
    file: str | Path,
    *,
    preparation: Preparation = "default",
    preset: str = "none",
    drop: Sequence[str] = (),
    bind: Mapping[str, Sequence[int | str | Expr]] | None = None,
    settings: Mapping[str, int] | None = None,
) -> Imported:
    """Read the Graph of the MetaGraphDef in ``file``.

    ``preparation``: ``default`` keeps what the training step runs; ``catamount`` all but savers and initializers, and
    what ``preset`` and the patterns ``drop`` name. ``bind`` names sizes: for a pattern of node names the dims, or for
    constants the elements. ``settings`` are values of symbols.
    Raises MetaGraphError for a file that cannot be read, WorkloadError for a setting that is no symbol of its sizes.
    """
    program = read_program(file, preparation=preparation, preset=preset, drop=drop, bind=bind)
    visible = [name for name in program.hints if "::" not in name]
    require_symbols(file, (name for name in settings or {} if name not in program.hints), visible)
    given = settings or {}
    program = msgspec.structs.replace(
        program,
        hints={**program.hints, **given},
        unknown_trips=tuple(name for name in program.unknown_trips if name not in given),
    )
    return Imported(graph_of_program(program, Path(file).name), symbols=program.hints)
