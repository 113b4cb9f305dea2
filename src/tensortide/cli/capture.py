"""``tensortide capture``: write the Graph of one step to a file, or the step as a DTR log."""

from __future__ import annotations

import inspect
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from tensortide.cli.durations import TimeOptions, timed
from tensortide.cli.reading import KINDS
from tensortide.cli.show import show
from tensortide.cli.source import (
    OutputOptions,
    ShownOptions,
    console,
    graph_of,
    is_stdout,
    option,
    print_json,
)
from tensortide.errors import WorkloadError
from tensortide.graph import Graph, save
from tensortide.graph.file import SUFFIX
from tensortide.importers.door import resolve
from tensortide.importers.dtrlog.write import is_log_file, write_log
from tensortide.recorder.target import Scalar
from tensortide.write import check_writable

if TYPE_CHECKING:
    from tensortide.examples import Example


def capture(
    target: Annotated[
        str,
        Parameter(
            show_default=False,
            help=f"An example, file.py:function, package.module:function, or a file or folder: {KINDS}.",
        ),
    ] = "",
    /,
    *,
    output: Annotated[
        Path | None,
        Parameter(
            name=["--output", "-o"],
            help="File to write (default: NAME.tide). A .log or .jsonl (also .gz) is a DTR log with durations.",
        ),
    ] = None,
    listed: Annotated[
        bool, option("--list", "List the built-in examples, or the hyperparameters of one, instead.")
    ] = False,
    options: ShownOptions = ShownOptions(),  # noqa: B008
    times: TimeOptions = TimeOptions(),  # noqa: B008
    out: OutputOptions = OutputOptions(),  # noqa: B008
) -> None:
    """Capture one training step as a graph and save it; every other verb reads the file."""
    if listed:
        _list(target, out)
        return
    if not target:
        raise WorkloadError("capture needs a target; tensortide capture --list shows the built-in examples")
    path = check_writable(output or Path(_name(target) + SUFFIX))
    as_log = is_log_file(str(path))
    if times != TimeOptions() and not as_log:
        raise WorkloadError("--durations, --machine and --measure go with a log: -o NAME.log")
    if as_log:
        step = timed(resolve(target), options, times, quiet=out.quiet)
        graph = step.graph
        write_log(step.events or graph, step.durations.ns if step.durations else None, path)
    else:
        graph = graph_of(target, options, quiet=out.quiet)
        save(graph, path)
    if is_stdout(path):
        return
    if out.json:
        print_json(_summary(graph, path))
    elif not out.quiet:
        facts = _summary(graph, path)
        console().print(
            f"{facts['ops']:,} ops, {facts['storages']:,} storages, {facts['modules']:,} modules -> {path}",
            soft_wrap=True,
        )


def _list(name: str, out: OutputOptions) -> None:
    """Print the built-in examples, or one with its hyperparameters."""
    from tensortide import examples
    from tensortide.reports.sections.examples import document

    chosen = [examples.find(name)] if name else list(examples.examples())
    rows = [(one.name, one.summary, ", ".join(p for p in one.requires if p != "torch")) for one in chosen]
    show(document(rows, _hyperparameters(chosen[0]) if name else None), out)


def _hyperparameters(example: Example) -> dict[str, Scalar]:
    try:
        parameters = inspect.signature(example.load()).parameters
    except ImportError as error:
        raise WorkloadError(f"{example.name} cannot be imported: {error}") from error
    return {one.name: one.default for one in parameters.values()}


def _name(target: str) -> str:
    return target.rpartition(":")[2].rpartition("/")[2].removesuffix(SUFFIX)


def _summary(graph: Graph, path: Path) -> dict[str, object]:
    return {
        "path": str(path),
        "meta": graph.meta,
        "ops": len(graph),
        "ops_by_phase": dict(Counter(op.phase.value for op in graph.ops)),
        "calls": len(graph.calls),
        "tensors": len(graph.tensors),
        "storages": len(graph.storages),
        "modules": len(graph.modules),
    }
