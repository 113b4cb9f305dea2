"""``tensortide time``: the duration of every op of a step; whether steps are stationary; the rates of this machine."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated

from tensortide.cli.console import progress
from tensortide.cli.job import show_job
from tensortide.cli.show import Files, OutputRequest, show
from tensortide.cli.verb import family, verb
from tensortide.request import Opt, Request
from tensortide.studies.timing import calibrate as calibration
from tensortide.studies.timing import steady as stationarity
from tensortide.studies.timing.calibrate import CalibrateRequest
from tensortide.studies.timing.request import TimeRequest, answer
from tensortide.studies.timing.steady import SteadyRequest
from tensortide.timing.catalogue import matching

time_verbs = family("time")


@dataclass(frozen=True, kw_only=True)
class DevicesRequest(Request):
    """A list of devices in place of times."""

    GROUP = "Lists"

    listed: Annotated[
        bool,
        Opt(
            "List the devices of the catalogue, or those whose names have the words of TARGET, and exit.",
            "--list",
            common=True,
        ),
    ] = False


@time_verbs.default
@verb
def time(asked: TimeRequest, devices: DevicesRequest, files: Files, out: OutputRequest) -> None:
    """Show the time of every op of one step, by phase, op and module.

    Times are estimated for a device, or those beside a saved graph, unless --measure, --isolated or --from is given.
    --machine may be repeated, and may say how many devices: --machine 8xa100-sxm-80gb --machine 4xh100-sxm.
    --list shows the devices.
    """
    from tensortide.reports.sections.timed_step import document, over_time

    if devices.listed:
        _list(asked.target, files, out)
        return
    if asked.capture.all_stages:
        show_job(asked, asked.capture, files, out, rates=asked.links.rates)
        return
    with progress(out.quiet) as say:
        found = answer(asked, say)
    made = document(found)
    wrote = replace(files, trace=None).write(made, table="machines.machines" if len(found.predicted) > 1 else "ops")
    wrote += Files(trace=files.trace).write(over_time(found, made), table="ops")
    show(made, out, wrote=[*wrote, *found.wrote])


def _list(words: str, files: Files, out: OutputRequest) -> None:
    """Show the devices of the catalogue whose names have these words."""
    from tensortide.reports.sections.listings import of_devices

    made = of_devices(matching(words), words)
    show(made, out, wrote=files.write(made, table="devices"))


@time_verbs.command
@verb
def steady(asked: SteadyRequest, files: Files, out: OutputRequest) -> None:
    """Measure a step many times, and test whether its times are stationary: drift, autocorrelation, outliers.

    Shows a verdict in one sentence; --csv writes the series, --figure draws it.
    """
    from tensortide.reports.sections.measurements import of_steady

    with progress(out.quiet) as say:
        found = stationarity.answer(asked, say)
    made = of_steady(found)
    show(made, out, wrote=files.write(made, table="steps"))


@time_verbs.command
@verb
def calibrate(asked: CalibrateRequest, files: Files, out: OutputRequest) -> None:
    """Measure this machine once, in under five minutes: --machine local predicts with it from then on.

    Measures the rates of large products and copies, then small training steps, and fits the constants of each
    family of ops to them. They are kept in the user's cache (or TENSORTIDE_MEASURED) for this device, version of
    PyTorch and number of threads; measuring again replaces them. Other work on the machine disturbs it. Ctrl-C keeps
    the steps that are done, and the same command goes on with them.

    tensortide time calibrate; tensortide time gpt2 --machine local
    """
    from tensortide.reports.sections.measurements import of_calibration

    with progress(out.quiet) as say:
        found, path = calibration.answer(asked, say)
    made = of_calibration(found)
    show(made, out, wrote=[path, *files.write(made, table="families")])
