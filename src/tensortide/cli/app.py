"""The application: verbs by group, each imported when it is called."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any, NamedTuple

from cyclopts import App

import tensortide
from tensortide.cli.verb import HELP_FLAGS, family

ABOUT = "What does one training step of a model cost, and how do I make it fit?"


class Verb(NamedTuple):
    """A verb: ``module:name`` of its function or App, the line that it has in ``tensortide --help``, and, for those
    that it begins with, a command to try."""

    place: str
    summary: str
    example: str = ""


def _verb(name: str, summary: str, example: str = "") -> Verb:
    return Verb(f"tensortide.cli.{name}", summary, example)


VERBS: dict[str, dict[str, Verb]] = {
    "Start here": {
        "fit": _verb("fit:fit", "Does it fit? If not, what helps?", "fit gpt2 --machine t4"),
        "report": _verb("report:report", "What one step costs", "report gpt2"),
        "count": _verb("count:count", "FLOPs, bytes and parameters", "count gpt2"),
        "time": _verb("time:time_verbs", "How long it takes, op by op", "time gpt2 --machine t4"),
        "compare": _verb("compare:compare", "How two steps differ, and where", "compare gpt2 gpt2 --set B:batch=4"),
    },
    "See more of a step": {
        "memory": _verb("memory:memory", "Memory over the step: its peak, what is resident, what is idle."),
        "metrics": _verb("metrics:metrics", "Named figures of the step in one table; its layer table."),
        "draw": _verb("draw:draw", "A picture of the step, folded by module where it is large."),
        "capture": _verb("capture:capture", "Save the step to a file that every other verb reads."),
        "check": _verb("check:check", "Fail where a step costs more than it may, or than it did."),
        "formulas": _verb("formulas:formulas", "Costs as formulas in hyperparameters: sweep, solve, project."),
    },
    "Make it fit": {
        "run": _verb("run:run", "Train live within a memory budget, bit for bit the same."),
        "plan": _verb("plan:plan", "The fastest way to run the step in less memory, and its bound."),
        "scale": _verb("scale:scale", "The step on many devices: divided how, how fast, at what price."),
        "place": _verb("place:place", "The device of a cluster on which each layer runs best."),
        "remat": _verb("remat.app:remat", "Evict and recompute, simulated: policies, budgets, experiments."),
        "experiment": _verb("experiment:experiment_verbs", "Trials of a file, simulated and live; two runs compared."),
    },
}
"""Every verb by name, in the group that it has in ``--help``."""


def application(arguments: Sequence[str]) -> App:
    """Make the application for ``arguments``: of the verbs that they name, or else of all, so that a name that is
    misspelt has its like. Verbs that they do not name are known, and not imported."""
    app = family("tensortide")
    app.version, app.suppress_keyboard_interrupt = tensortide.__version__, False
    app.whole = HELP_FLAGS[-1] in arguments
    known = {name: verb for verbs in VERBS.values() for name, verb in verbs.items()}
    is_verb = arguments[:1] and arguments[0] in known
    for name, verb in known.items():
        if name in arguments:
            app.command(_imported(verb), name=name)
        elif not is_verb:
            app.command(family(name), name=name)
    return app


def _imported(verb: Verb) -> Any:
    module, _, name = verb.place.partition(":")
    return getattr(importlib.import_module(module), name)
