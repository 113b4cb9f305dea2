"""``tensortide capture``: write one step to a file: its Graph, a DTR log, a Chakra trace, or the files of G10."""

from __future__ import annotations

import inspect
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from tensortide.cli.console import is_stdout, progress
from tensortide.cli.show import OutputRequest, show, tell
from tensortide.cli.verb import verb
from tensortide.errors import WorkloadError
from tensortide.importers.table import importers
from tensortide.recorder.target import Scalar
from tensortide.request import Opt, Request, exclusive
from tensortide.targets.saving import Saved, SaveRequest, answer

if TYPE_CHECKING:
    from tensortide.examples import Example


@dataclass(frozen=True, kw_only=True)
class ListRequest(Request):
    """A list of targets in place of a capture."""

    GROUP = "Lists"

    listed: Annotated[
        bool, Opt("List the built-in examples, or the hyperparameters of one, and exit.", "--list", common=True)
    ] = False
    kinds: Annotated[
        bool, Opt("List the kinds of files that every verb reads, with their options, and exit.", common=True)
    ] = False

    RULES = (exclusive("listed", "kinds"),)


@verb
def capture(asked: SaveRequest, listing: ListRequest, out: OutputRequest) -> None:
    """Capture one training step as a graph and save it; every other verb reads the file."""
    if listing.listed:
        _list(asked.target, out)
    elif listing.kinds:
        from tensortide.reports.sections.listings import of_kinds

        show(of_kinds(importers()), out)
    else:
        with progress(out.quiet) as say:
            found = answer(asked, say)
        if not is_stdout(found.path):
            _tell(found, out)


def _list(name: str, out: OutputRequest) -> None:
    """Print the built-in examples, or one with its hyperparameters."""
    from tensortide import examples
    from tensortide.reports.sections.listings import of_workloads

    chosen = [examples.find(name)] if name else list(examples.examples())
    show(of_workloads(chosen, _hyperparameters(chosen[0]) if name else None), out)


def _hyperparameters(example: Example) -> dict[str, Scalar]:
    try:
        parameters = inspect.signature(example.load()).parameters
    except ImportError as error:
        raise WorkloadError(f"{example.name} cannot be imported: {error}") from error
    return {one.name: one.default for one in parameters.values()}


def _tell(found: Saved, out: OutputRequest) -> None:
    """Say what was written, and what was assumed for it."""
    from tensortide.reports.sections.assumed import brief

    graph = found.graph
    facts = {
        "path": str(found.path),
        "meta": graph.meta,
        "ops": len(graph),
        "ops_by_phase": dict(Counter(op.phase.value for op in graph.ops)),
        "calls": len(graph.calls),
        "tensors": len(graph.tensors),
        "storages": len(graph.storages),
        "modules": len(graph.modules),
    }
    counts = ", ".join(f"{facts[name]:,} {name}" for name in ("ops", "storages", "modules"))
    assumed = [f"assumed: {note.text}" for note in brief(graph)]
    tell(facts, [f"{counts} -> {found.path}", *assumed], out)
