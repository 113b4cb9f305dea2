"""The application: verbs by group, each imported when it is called."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any, NamedTuple

from cyclopts import App, Group

import tensortide
from tensortide.cli.console import console


class Verb(NamedTuple):
    """A verb: ``module:name`` of its function or App, and the line that it has in ``tensortide --help``."""

    place: str
    summary: str


def _verb(name: str, summary: str) -> Verb:
    return Verb(f"tensortide.cli.{name}", summary)


VERBS: dict[str, dict[str, Verb]] = {
    "See it": {
        "report": _verb("report:report", "What one step costs, in full: printed, and as one page to keep."),
        "count": _verb("count:count", "FLOPs, MACs, bytes and parameters: by phase, module and op."),
        "memory": _verb("memory:memory", "Memory over the step: its peak, what is resident, what is idle."),
        "metrics": _verb("metrics:metrics", "Named figures of the step in one table; its layer table."),
        "time": _verb("time:time_verbs", "The time of every op: estimated for a device, or measured."),
        "draw": _verb("draw:draw", "A picture of the step, folded by module where it is large."),
        "capture": _verb("capture:capture", "Save the step to a file that every other verb reads."),
    },
    "Make it fit": {
        "fit": _verb("fit:fit", "Does the step fit, what takes its memory, and what to do."),
        "run": _verb("run:run", "Train live within a memory budget, bit for bit the same."),
        "scale": _verb("scale:scale", "The step on many devices: divided how, how fast, at what price."),
        "plan": _verb("plan:plan", "The fastest way to run the step in less memory, and how good it is."),
        "place": _verb("place:place", "On which device of a cluster each layer runs, and how good that is."),
    },
    "Compare": {
        "check": _verb("check:check", "Fail where a step costs more than it may, or than it did."),
        "compare": _verb("compare:compare", "Steps beside each other: what differs, where, and whether it may."),
        "formulas": _verb("formulas:formulas", "Costs as formulas in hyperparameters: sweep, solve, project."),
    },
    "Research": {
        "remat": _verb("remat.app:remat", "Evict and recompute, simulated: policies, budgets, experiments."),
    },
}
"""Every verb by name, in the group that it has in ``--help``."""


def application(arguments: Sequence[str]) -> App:
    """Make the application for ``arguments``. Verbs that they do not name are listed, and not imported."""
    app = App(
        name="tensortide",
        help="What does one training step of a model cost, and how do I make it fit?",
        version=tensortide.__version__,
        help_format="plaintext",
        suppress_keyboard_interrupt=False,
        console=console() if not arguments or {"--help", "-h"} & {*arguments} else None,  # else nothing is shown here
    )
    app["--help"].group = app["--version"].group = Group("Options", sort_key=len(VERBS))
    for number, (title, verbs) in enumerate(VERBS.items()):
        group = Group(title, sort_key=number)
        for place, (name, verb) in enumerate(verbs.items()):
            found = _imported(verb) if name in arguments else App(name=name, help=verb.summary)
            if isinstance(found, App):
                found.group, found.sort_key = (group,), place
                app.command(found)
            else:
                app.command(found, name=name, group=group, sort_key=place)
    return app


def _imported(verb: Verb) -> Any:
    module, _, name = verb.place.partition(":")
    return getattr(importlib.import_module(module), name)
