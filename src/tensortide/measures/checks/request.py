"""Checks as a request: those of a file, by name, or assertions on one target."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, NamedTuple

from tensortide.errors import CheckError, ExitStatus, TensortideError, status_of
from tensortide.importers.door import File, resolve
from tensortide.measures.checks.captures import Place, measured_in, places
from tensortide.measures.checks.checking import Checked, checked, compares, parsed
from tensortide.measures.checks.measured import Measured
from tensortide.measures.checks.suite import Check, chosen, find_file, load_checks
from tensortide.measures.registry import default_registry
from tensortide.progress import Say, silent
from tensortide.request import Arg, Opt, Request, Rule, exclusive, needs, options
from tensortide.targets.machines import is_local, machines_of
from tensortide.targets.opening import opened
from tensortide.targets.requests import TARGET, CaptureRequest, single_machine
from tensortide.timing.collectives.nodes import counts_and_name
from tensortide.timing.local import NAME
from tensortide.write import write_files

_IN_FILE = "those of a named check are in its file"


def _one_target(asked: Request) -> str | None:
    several = asked.has("assertions") and len(asked.get("names")) != 1
    return "--assert goes with one target: tensortide check TARGET --assert 'peak <= 24GiB'" if several else None


@dataclass(frozen=True, kw_only=True)
class CheckRequest(Request):
    """Check that steps still cost what they may."""

    GROUP = "Assertions and baselines"

    names: Annotated[
        tuple[str, ...],
        Arg(f"Names of checks in the file (default: all). With --assert one target: {TARGET[0].lower()}{TARGET[1:]}"),
    ] = ()
    assertions: Annotated[
        tuple[str, ...],
        Opt(
            "What must hold: 'peak <= 24GiB', 'flops <= +1% of baseline'.",
            "--assert",
            common=True,
            value="ASSERTION",
        ),
    ] = ()
    file: Annotated[
        Path | None,
        Opt("File of checks (default: tensortide.toml, or pyproject.toml, here or in a folder above).", common=True),
    ] = None
    baseline: Annotated[Path | None, Opt("With --assert: the file of the baseline to compare with.", common=True)] = (
        None
    )
    accept: Annotated[
        bool, Opt("Write the baselines anew: the steps as they are now, whatever they were.", common=True)
    ] = False
    capture: CaptureRequest = CaptureRequest()

    RULES = (
        Rule(("assertions", "names"), _one_target),
        exclusive("assertions", "file", why="a file has checks with assertions of their own"),
        needs("baseline", "assertions", why=_IN_FILE),
        *(needs(one.field.name, "assertions", why=_IN_FILE) for one in options(CaptureRequest)),
        single_machine(others="name others in assertions, as time(h100) <= 210 ms"),
    )


class Tried(NamedTuple):
    """A check, and its result; None, for the error, if it could not be tried."""

    check: Check
    result: Checked | None
    error: TensortideError | None = None

    @property
    def status(self) -> ExitStatus:
        """The status of its result, or of its error."""
        return status_of(self.error) if self.result is None else self.result.status


def answer(asked: CheckRequest, say: Say = silent) -> tuple[Tried, ...]:
    """Try the checks. With ``accept`` their baselines are written: all, or none if one could not be tried.

    Raises:
        CheckError: the file of checks or an assertion cannot be read.
        TensortideError: a check that is no named one could not be tried.
    """
    if asked.assertions:
        inline = Check(asked.names[0], asked.names[0], asked.assertions, asked.baseline, asked.capture)
        found = [Tried(inline, _checked(inline, say, accept=asked.accept))]
    else:
        named = chosen(load_checks(asked.file or find_file(Path())), asked.names)
        found = [_tried(one, say, accept=asked.accept) for one in named]
    if any(one.error is not None for one in found):
        return tuple(
            one._replace(result=None if one.result is None else replace(one.result, accepted=None)) for one in found
        )
    taken = [one.result.accepted for one in found if one.result is not None and one.result.accepted is not None]
    write_files({one.path: one.baseline.text() for one in taken})
    return tuple(found)


def _tried(one: Check, say: Say, *, accept: bool) -> Tried:
    """Try a check of a file, which leaves the others alone."""
    try:
        return Tried(one, _checked(one, say, accept=accept))
    except TensortideError as error:
        return Tried(one, None, error)


def _checked(one: Check, say: Say, *, accept: bool) -> Checked:
    """Capture the step, for each device that assertions name, and try the assertions on it."""
    registry, asked = default_registry(), one.capture
    rules = parsed(one.assertions, registry)
    machine = asked.machines[0] if asked.machines else None
    if machine is not None and is_local(counts_and_name(machine)[1]):
        raise CheckError(
            f"a check is the same wherever it runs: it takes machines of the catalogue and files, not {NAME}"
        )
    if machine is not None:
        machines_of(machine)  # the error of what has no times, before anything is captured
    target = resolve(one.target)

    def capture(how: CaptureRequest) -> Measured:
        step = opened(target, how, say)
        return Measured(step.graph, registry, step.durations, machine)

    def captured_in(place: Place) -> Measured:
        return capture(replace(asked, device=place.device, machines=(place.machine,) if place.machine else ()))

    if isinstance(target, File):
        measured = (capture(replace(asked, machines=())),) * len(rules)
    elif asked.real or asked.compiled:  # on the CPU at hand, whatever assertions name
        measured = (capture(asked),) * len(rules)
    else:
        measured = measured_in(places(rules, asked.device, machine), captured_in)
    baseline = one.baseline if accept or not one.usual or compares(rules) else None
    title = one.name if one.file is not None else ""
    return checked(rules, measured, baseline=baseline, accept=accept, name=title)
