"""The application: verbs by name."""

from __future__ import annotations

from cyclopts import App

import tensortide
from tensortide.cli.asymptotics import asymptotics
from tensortide.cli.capture import capture
from tensortide.cli.count import count
from tensortide.cli.doctor import doctor
from tensortide.cli.examples import examples
from tensortide.cli.explain import explain
from tensortide.cli.footprint import footprint
from tensortide.cli.liveness import liveness
from tensortide.cli.profile import profile
from tensortide.cli.project import project
from tensortide.cli.remat.app import remat
from tensortide.cli.report import report
from tensortide.cli.run import run
from tensortide.cli.solve import solve
from tensortide.cli.sweep import sweep
from tensortide.cli.timeline import timeline

app = App(
    name="tensortide",
    help="What does one training step of a model cost, and how do I make it fit?",
    version=tensortide.__version__,
    help_format="plaintext",
    suppress_keyboard_interrupt=False,
)

for verb in (
    report,
    capture,
    count,
    timeline,
    liveness,
    footprint,
    explain,
    doctor,
    profile,
    sweep,
    solve,
    asymptotics,
    project,
    run,
    examples,
):
    app.command(verb)
app.command(remat)
