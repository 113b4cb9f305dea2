"""The application: verbs by group, each imported when it is called; and the names that verbs had before."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any, NamedTuple

from cyclopts import App, Group

import tensortide


class Verb(NamedTuple):
    """A verb: ``module:name`` of its function or App, and the line that it has in ``tensortide --help``.

    ``error_status`` is the exit status of its errors: 2 where 1 is an answer.
    """

    place: str
    summary: str
    error_status: int = 1


def _verb(name: str, summary: str, error_status: int = 1) -> Verb:
    return Verb(f"tensortide.cli.{name}", summary, error_status)


VERBS: dict[str, dict[str, Verb]] = {
    "See it": {
        "report": _verb("report:report", "What one step costs, in full: printed, and as one page to keep."),
        "count": _verb("count:count", "FLOPs, MACs, bytes and parameters: by phase, module and op."),
        "memory": _verb("memory:memory", "Memory over the step: its peak, what is resident, what is idle."),
        "metrics": _verb("metrics:metrics", "Named figures of the step in one table; its layer table."),
        "time": _verb("calibrate:time_verbs", "The time of every op: estimated for a device, or measured."),
        "draw": _verb("draw:draw", "A picture of the step, folded by module where it is large."),
        "capture": _verb("capture:capture", "Save the step to a file that every other verb reads."),
    },
    "Make it fit": {
        "fit": _verb("fit:fit", "Does the step fit, what takes its memory, and what to do."),
        "run": _verb("run:run", "Train live within a memory budget, bit for bit the same."),
        "scale": _verb("scale:scale", "The step on many devices: divided how, how fast, at what price.", 2),
        "plan": _verb("plan:plan", "The fastest way to run the step in less memory, and how good it is.", 2),
        "place": _verb("place:place", "On which device of a cluster each layer runs, and how good that is.", 2),
    },
    "Compare": {
        "check": _verb("check:check", "Fail where a step costs more than it may, or than it did.", 2),
        "compare": _verb("compare:compare", "Steps beside each other: what differs, where, and whether it may.", 2),
        "formulas": _verb("formulas:formulas", "Costs as formulas in hyperparameters: sweep, solve, project."),
    },
    "Research": {
        "remat": _verb("remat.app:remat", "Evict and recompute, simulated: policies, budgets, experiments."),
    },
}
"""Every verb by name, in the group that it has in ``--help``."""

MOVED: dict[str, str] = {
    "timeline": "memory",
    "liveness": "memory --idle",
    "explain": "count --explain",
    "doctor": "count --missing",
    "profile": "time --measure",
    "examples": "capture --list",
    "footprint": "plan order",
    "sweep": "formulas sweep",
    "solve": "formulas solve",
    "asymptotics": "formulas growth",
    "project": "formulas project",
    "simulate": "remat simulate",
    "symbolic": "formulas show",
    "remat compare": "remat contenders",
    "remat asymptotics": "remat growth",
}
"""Names of former verbs, and what to write instead."""

MOVED_OPTIONS = {"report --ops-csv": "--csv FILE", "report --modules-csv": "--csv modules.modules=FILE"}
"""Former options with their verbs, and what to write instead."""


def application(arguments: Sequence[str]) -> App:
    """Make the application for ``arguments``. Verbs that they do not name are listed, and not imported."""
    app = App(
        name="tensortide",
        help="What does one training step of a model cost, and how do I make it fit?",
        version=tensortide.__version__,
        help_format="plaintext",
        suppress_keyboard_interrupt=False,
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


def error_status(arguments: Sequence[str]) -> int:
    """Return the exit status of an error of the verb with which ``arguments`` begin."""
    return next((verbs[name].error_status for verbs in VERBS.values() for name in arguments[:1] if name in verbs), 1)


def _imported(verb: Verb) -> Any:
    module, _, name = verb.place.partition(":")
    return getattr(importlib.import_module(module), name)


def moved(arguments: Sequence[str]) -> str | None:
    """Say what replaces the former verb with which ``arguments`` begin, or a former option (None: there is none).

    Examples:
        >>> moved(["remat", "compare", "gpt2"])
        'this verb is now: tensortide remat contenders'
        >>> moved(["report", "gpt2", "--ops-csv", "ops.csv"])
        '--ops-csv is now: --csv FILE'
    """
    for old, new in MOVED.items():
        if list(arguments[: old.count(" ") + 1]) == old.split():
            return f"this verb is now: tensortide {new}"
    given = [f"{arguments[0]} {each.partition('=')[0]}" for each in arguments[1:]]
    return next((f"{old.split()[1]} is now: {new}" for old, new in MOVED_OPTIONS.items() if old in given), None)
