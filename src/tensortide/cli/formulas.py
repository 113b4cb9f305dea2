"""The options of verbs that work on formulas, and the Formulas they lead to."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from tensortide.cli.source import option, progress, resolver
from tensortide.errors import ExpressionError, WorkloadError
from tensortide.expr import Expr, parse
from tensortide.formulas.file import load_formulas
from tensortide.formulas.formulas import Formulas
from tensortide.importers.files import GRAPH_FILES, is_graph_file
from tensortide.recorder.target import find, parse_settings

FormulasTarget = Annotated[
    str,
    Parameter(help="A file of formulas, a .meta graph, or a workload: file.py:function or an example."),
]
Plot = Annotated[Path | None, Parameter(help="Draw it: a file that ends in .png, .svg or .pdf.")]
Paths = Annotated[
    tuple[str, ...],
    Parameter(name="--path", negative=(), show_default=False, help="A symbol that follows: --path hidden=64*heads."),
]


@Parameter(name="*")
@dataclass(frozen=True)
class FormulaOptions:
    """Where the formulas hold and what their symbols are."""

    set: Annotated[
        tuple[str, ...], option("--set", "A value: key=value. Once for each: --set seq=1024 --set batch=2.")
    ] = ()
    symbols: Annotated[
        str, option("--symbols", "For a workload: hyperparameters that stay symbols, as in batch,hidden.")
    ] = ""
    condition: Annotated[
        tuple[str, ...], option("--condition", 'For a workload: what its settings must meet: "hidden % heads == 0".')
    ] = ()


def formulas_of(target: str, needed: Iterable[str], options: FormulaOptions, *, quiet: bool) -> Formulas:
    """The Formulas of ``target`` at the settings of ``options``: read from a file, else found from the workload.

    ``needed`` are the symbols that the verb works on.
    """
    if target.endswith(".json") or (Path(target).is_file() and not target.endswith((".py", *GRAPH_FILES))):
        if options.symbols or options.condition:
            raise WorkloadError(f"{target} is a file of formulas: --symbols and --condition go with a workload")
        return load_formulas(target).at(**bindings_of(options))
    if is_graph_file(target):
        return _of_graph_file(target, options)
    from tensortide.formulas import symbolic

    workload = find(target)
    known = inspect.signature(workload).parameters
    over = dict.fromkeys([*(name for name in re.split(r"[,\s]+", options.symbols) if name), *needed])
    if "batch" in known:
        over["batch"] = None
    with progress(quiet) as say:
        return symbolic(
            workload,
            over=tuple(over),
            hyperparameters=parse_settings(options.set, workload, target),
            where=options.condition,
            name=target,
            resolver=resolver,
            progress=say,
        ).formulas


def _of_graph_file(target: str, options: FormulaOptions) -> Formulas:
    """The formulas of a TensorFlow graph file: its sizes have symbols already."""
    if options.symbols or options.condition:
        raise WorkloadError(f"{target} is a graph file, its symbols are found in it: --symbols goes with a workload")
    from tensortide.formulas.imported import formulas_of_graph
    from tensortide.importers.tf1.load import import_graph

    imported = import_graph(target)
    return formulas_of_graph(imported.graph, imported.hints, Path(target).name).at(**bindings_of(options))


def bindings_of(options: FormulaOptions) -> dict[str, int]:
    """The values of ``--set``, which are whole numbers."""
    values: dict[str, int] = {}
    for setting in options.set:
        name, equals, value = (part.strip() for part in setting.partition("="))
        if not equals or not re.fullmatch(r"\d+", value):
            raise ExpressionError(f"--set takes key=value with a whole number, not {setting!r}")
        values[name] = int(value)
    return values


def path_of(steps: Iterable[str]) -> dict[str, Expr]:
    """The symbols that follow others, of ``--path hidden=64*heads``."""
    path: dict[str, Expr] = {}
    for step in steps:
        name, equals, expr = step.partition("=")
        if not equals:
            raise ExpressionError(f"--path takes symbol=expression, not {step!r}")
        path[name.strip()] = parse(expr)
    return path


def symbols_of(path: dict[str, Expr]) -> set[str]:
    """The symbols that a path is about."""
    return {*path, *(name for expr in path.values() for name in expr.symbols)}
