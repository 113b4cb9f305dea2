"""The options of verbs that work on formulas, and the Formulas they lead to."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated

from cyclopts import Parameter

from tensortide.cli.source import option
from tensortide.cli.symbols import derived, names_of
from tensortide.cost.table import known_sizes
from tensortide.errors import ExpressionError, WorkloadError
from tensortide.expr import Expr, parse
from tensortide.formulas.derive import formulas_of_graph
from tensortide.formulas.formulas import Formulas, is_formulas_file, load_formulas
from tensortide.importers.door import File, resolve
from tensortide.recorder.target import find_workload, parse_settings

FormulasTarget = Annotated[
    str,
    Parameter(help="A file of formulas, a .meta graph, or a workload: file.py:function or an example."),
]
Paths = Annotated[
    tuple[str, ...],
    Parameter(name="--path", negative=(), show_default=False, help="A symbol that follows: --path hidden=64*heads."),
]


@Parameter(name="*")
@dataclass(frozen=True)
class FormulaOptions:
    """Region and symbols of the formulas."""

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
    workload = find_workload(target)
    if workload is None and is_formulas_file(target):
        if options.symbols or options.condition:
            raise WorkloadError(f"{target} is a file of formulas: --symbols and --condition go with a workload")
        return load_formulas(target).at(**bindings_of(options))
    found = workload or resolve(target)
    if isinstance(found, File):
        if options.symbols or options.condition:
            raise WorkloadError(
                f"{found}, and its symbols are found in it: --symbols and --condition go with a workload"
            )
        step = found.read(durations=False)
        symbols = step.symbols or known_sizes(step.graph)
        return formulas_of_graph(step.graph, symbols, found.path.name).at(**bindings_of(options))
    over = dict.fromkeys([*names_of(options.symbols, found.function), *needed])
    if "batch" in inspect.signature(found.function).parameters:
        over["batch"] = None
    settings = parse_settings(options.set, found.function, target)
    return derived(found, tuple(over), settings, options.condition, quiet=quiet).formulas


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
