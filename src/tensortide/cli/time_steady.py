"""``tensortide time steady``: whether the times of a step, measured many times, are stationary."""

from __future__ import annotations

from typing import Annotated, Literal

from cyclopts import Parameter, validators

from tensortide.cli.show import Files, show
from tensortide.cli.source import OutputOptions, Settings, option, step_of, with_progress
from tensortide.recorder.target import parse_settings
from tensortide.timing.stationarity import last_batches, require_enough, stationarity


def steady(
    target: Annotated[str, option("", "Name of an example, or file.py:function.")],
    /,
    *,
    settings: Settings = (),
    repeat: Annotated[int, option("--repeat", "Steps to measure, after warming up: 8 or more.")] = 50,
    drop_last: Annotated[
        int | None,
        option("--drop-last", "Batches of an epoch, the last of which is smaller: judge the steps without it, too."),
        Parameter(validator=validators.Number(gte=2)),
    ] = None,
    clock: Annotated[
        Literal["wall", "thread"],
        Parameter(help="Measure wall time, or processor time of one thread (for shared machines)."),
    ] = "wall",
    threads: Annotated[
        int | None,
        Parameter(
            show_default=False, help="Threads per op (with --clock thread: 1).", validator=validators.Number(gte=1)
        ),
    ] = None,
    device: Annotated[str, option("--device", "Device to run on: cpu or cuda.")] = "cpu",
    files: Files = Files(),  # noqa: B008
    out: OutputOptions = OutputOptions(),  # noqa: B008
) -> None:
    """Measure a step many times, and test whether its times are stationary: drift, autocorrelation, outliers.

    Shows a verdict in one sentence; --csv writes the series, --figure draws it.
    """
    from tensortide.profile.host import describe
    from tensortide.profile.measure import measure_steps
    from tensortide.reports.sections.steady import document

    files.check()
    require_enough(repeat if drop_last is None else repeat - -(-repeat // drop_last))
    found = step_of(target, "time steady")
    values = parse_settings(settings, found.function, found.name)
    how = {"clock": clock, "threads": 1 if clock == "thread" and threads is None else threads, "device": device}
    times = with_progress(measure_steps, found, values, quiet=out.quiet, repeats=repeat, **how)
    last = () if drop_last is None else last_batches(repeat, times.first, drop_last)
    made = document(
        stationarity(times.ns),
        times.ns,
        target=found.name,
        where=f"{repeat} steps after {times.warm_up} of warm-up, {clock} time, on {describe(times.machine)}",
        without=None if drop_last is None else stationarity(times.ns, last),
    )
    show(made, out, wrote=files.write(made, table="steps"))
