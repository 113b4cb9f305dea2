"""``tensortide time`` with its verbs: ``calibrate``, which measures the rates of the machine at hand and keeps them,
and ``steady`` (``time_steady``)."""

from __future__ import annotations

from typing import Annotated, Literal

from cyclopts import App, Parameter, validators

from tensortide.cli.messages import say
from tensortide.cli.show import Files, show
from tensortide.cli.source import OutputOptions, option, progress
from tensortide.cli.time import time
from tensortide.cli.time_steady import steady

time_verbs = App(name="time", help_format="plaintext")
time_verbs.default(time)
time_verbs.command(steady)


@time_verbs.command
def calibrate(
    *,
    device: Annotated[str, option("--device", "Device to calibrate: cpu or cuda (default: cpu).")] = "cpu",
    clock: Annotated[
        Literal["wall", "thread"],
        Parameter(help="Measure wall time, or processor time of one thread (for shared machines)."),
    ] = "wall",
    threads: Annotated[
        int | None,
        Parameter(
            show_default=False,
            help="Threads per op (default: as many as PyTorch takes; with --clock thread: 1).",
            validator=validators.Number(gte=1),
        ),
    ] = None,
    files: Files = Files(),  # noqa: B008
    out: OutputOptions = OutputOptions(),  # noqa: B008
) -> None:
    """Measure this machine once, in under five minutes: --machine local predicts with it from then on.

    Measures the rates of large products and copies, then small training steps, and fits the constants of each
    family of ops to them. They are kept in the user's cache (or TENSORTIDE_MEASURED) for this device, version of
    PyTorch and number of threads; measuring again replaces them. Other work on the machine disturbs it. Ctrl-C keeps
    the steps that are done, and the same command goes on with them.

    tensortide time calibrate; tensortide time gpt2 --machine local
    """
    from tensortide.profile.calibration.run import calibrate as measured
    from tensortide.reports.sections.calibration import document

    files.check()
    try:
        with progress(out.quiet) as say:
            found, path = measured(device=device, clock=clock, threads=threads, progress=say, note=_note)
    except KeyboardInterrupt:
        _note("steps that were measured are kept: the same command goes on with the others")
        raise
    made = document(found)
    show(made, out, wrote=[path, *files.write(made, table="families")])


def _note(text: str) -> None:
    say("note", text)
