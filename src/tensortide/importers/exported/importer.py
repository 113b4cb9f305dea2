"""Programs of torch.export and torch.fx as a row of the table of importers."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from tensortide.importers.imported import Imported
from tensortide.importers.table import Importer, SizedOptions


@dataclass(frozen=True)
class ExportOptions(SizedOptions):
    """Names of dimensions, which program of an archive, and ``symbols``: values of the symbols in
    sizes. ``inputs``, for a GraphModule without shapes: example inputs, fake or real.
    ``signature``, for a GraphModule of ``aot_export_module``: what that returns beside it."""

    bind: Annotated[tuple[str, ...], "Names of an input's dimensions: ids=batch,seq."] = ()
    program: Annotated[str, "The name of one of several programs in an archive."] = ""
    inputs: Any = None
    signature: Any = None


def _sniff(path: Path) -> bool:
    from tensortide.importers.exported.archive import holds_program

    return holds_program(path)


def _read(path: Path, options: ExportOptions) -> Imported:
    from tensortide.importers.exported.archive import read_archive
    from tensortide.importers.exported.build import graph_of
    from tensortide.importers.exported.deserialize import read_program

    program, sizes = read_program(read_archive(path, options.program), options.symbols, options.bind)
    return Imported(graph_of(program), symbols=sizes.shown)


def _accepts(target: object) -> bool:
    fx, export = sys.modules.get("torch.fx"), sys.modules.get("torch.export")
    kinds = [getattr(fx, "GraphModule", None), getattr(export, "ExportedProgram", None)]
    return any(isinstance(target, kind) for kind in kinds if kind is not None)


def _convert(target: Any, options: ExportOptions) -> Imported:
    from tensortide.importers.exported.live import convert

    return convert(target, options)


IMPORTER = Importer(
    "exported", "a program of torch.export or torch.fx (.pt2, ExportedProgram, GraphModule)", _sniff, _read,
    ExportOptions, accepts=_accepts, convert=_convert, modules=("torch.export", "torch.fx"),
)  # fmt: skip
