"""The application: verbs by group, and the names that verbs had before."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from cyclopts import App, Group

import tensortide
from tensortide.cli.capture import capture
from tensortide.cli.count import count
from tensortide.cli.formulas import formulas
from tensortide.cli.memory import memory
from tensortide.cli.plan import plan
from tensortide.cli.remat.experiments import ablation, accesses, banishing, growth, sweep
from tensortide.cli.remat.figures import figures
from tensortide.cli.remat.simulate import contenders, simulate
from tensortide.cli.report import report
from tensortide.cli.run import run
from tensortide.cli.time import time

remat = App(
    name="remat",
    help="Evict tensors and recompute them to fit a step into less memory: what it costs, under which policy.",
    help_format="plaintext",
)
for each in (simulate, sweep, contenders, ablation, banishing, accesses, growth, figures):
    remat.command(each)

VERBS: dict[str, tuple[Callable[..., None] | App, ...]] = {
    "The answer": (report,),
    "Look closer": (count, memory, time, formulas),
    "Make it fit": (plan, run),
    "Files": (capture,),
    "Research": (remat,),
}
"""Every verb, by the group it has in ``--help``."""

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
    for verb in verbs:
        if isinstance(verb, App):
            verb.group = (group,)
            app.command(verb)
        else:
            app.command(verb, group=group)


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
