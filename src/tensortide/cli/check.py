"""``tensortide check``: assertions over steps, in a file or inline, against limits and accepted baselines."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from tensortide.cli import github
from tensortide.cli.local import in_catalogue
from tensortide.cli.messages import cleaned, one_line, say
from tensortide.cli.show import Files, show
from tensortide.cli.source import TARGET, CaptureOptions, OutputOptions, opened, option
from tensortide.errors import CheckError, TensortideError
from tensortide.importers.door import File, resolve
from tensortide.metrics.checks.captures import Place, measured_in, places
from tensortide.metrics.checks.checking import Checked, checked, compares, parsed
from tensortide.metrics.checks.measured import Measured
from tensortide.metrics.checks.suite import Check, chosen, find_file, load_checks
from tensortide.metrics.registry import default_registry
from tensortide.timelines.machines import split
from tensortide.write import write_files


@Parameter(name="*")
@dataclass(frozen=True)
class BaselineOptions:
    """Baselines of checks."""

    baseline: Annotated[Path | None, option("--baseline", "With --assert: the file of the baseline.")] = None
    accept: Annotated[
        bool, option("--accept", "Write the baselines: the steps as they are now, whatever they were.")
    ] = False


def check(
    names: Annotated[
        tuple[str, ...],
        Parameter(
            help=f"Names of checks in the file (default: all). With --assert one target: {TARGET}.", show_default=False
        ),
    ] = (),
    /,
    *,
    assertions: Annotated[
        tuple[str, ...],
        option("--assert", "An assertion: 'peak <= 24GiB', 'flops <= +1% of baseline'. Repeatable."),
    ] = (),
    file: Annotated[
        Path | None,
        option("--file", "File of checks (default: tensortide.toml, or pyproject.toml, here or in a folder above)."),
    ] = None,
    baselines: BaselineOptions = BaselineOptions(),
    summary: Annotated[
        bool, option("--summary", "Append a summary to that of the job of GitHub Actions, as Markdown.")
    ] = False,
    files: Files = Files(),  # noqa: B008
    options: CaptureOptions = CaptureOptions(),  # noqa: B008
    out: OutputOptions = OutputOptions(),  # noqa: B008
) -> None:
    """Check that steps still cost what they may: assertions over metrics, and against accepted baselines.

    Exits with 0 if all assertions hold, 1 if one fails or is undecided, 2 if a check could not be tried: bad input, a
    failed capture, a baseline that is missing or of another step.
    """
    from tensortide.reports.render.markdown import render_markdown
    from tensortide.reports.sections.checks import documents

    files.check()
    job = github.summary_file() if summary else None
    asked = _inline(names, assertions, file, baselines) if assertions else _named(names, file, baselines, options)
    found, errors = list[tuple[Check, Checked]](), list[tuple[Check, TensortideError]]()
    for one in asked:
        try:
            how = options if assertions else _options(one)
            found.append((one, _tried(one, how, accept=baselines.accept, quiet=out.quiet)))
        except TensortideError as error:
            if assertions:
                raise
            errors.append((one, error))
    if errors:  # all baselines are accepted, or none
        found = [(one, replace(result, accepted=None)) for one, result in found]
    taken = [result.accepted for _, result in found if result.accepted is not None]
    write_files({one.path: one.baseline.text() for one in taken})
    made = documents([result for _, result in found], [(one.name, str(error)) for one, error in errors])
    if not found:  # errors are no table
        files = replace(files, csv=())
    show(made, out, wrote=files.write(made, table=f"{made.sections[0].key}.assertions"))
    if job is not None:
        github.append(job, render_markdown(made))
    _annotate(found, errors, out)
    if errors and baselines.accept:
        say("error", "no baseline was written: a check could not be tried")
    if any(not result.holds for _, result in found):
        raise SystemExit(1)
    if errors:
        raise SystemExit(2)


def _annotate(
    found: Sequence[tuple[Check, Checked]], errors: Sequence[tuple[Check, TensortideError]], out: OutputOptions
) -> None:
    """Say errors on standard error; in GitHub Actions annotate all that is no pass."""
    for one, error in errors:
        say("error", f"{one_line(one.name)}: {error}")
    if github.in_actions():
        lines = [line for one, result in found for line in github.annotated(one, result)]
        lines += [github.error_annotation(one, str(error)) for one, error in errors]
        (sys.stderr if out.json else sys.stdout).write("".join(f"{cleaned(line)}\n" for line in lines))


def _inline(names: Sequence[str], texts: Sequence[str], file: Path | None, baselines: BaselineOptions) -> list[Check]:
    """Make the check that the command line states. Raises CheckError if it has no target, or several."""
    if len(names) != 1:
        raise CheckError("--assert goes with one target: tensortide check TARGET --assert 'peak <= 24GiB'")
    if file is not None:
        raise CheckError("--file has checks with assertions of their own: leave out --assert")
    return [Check(names[0], names[0], tuple(texts), baselines.baseline)]


def _named(
    names: Sequence[str], file: Path | None, baselines: BaselineOptions, options: CaptureOptions
) -> tuple[Check, ...]:
    """Read the checks that the command line names."""
    if baselines.baseline is not None or options != CaptureOptions():
        raise CheckError("--baseline and options of captures go with --assert; those of a named check are in its file")
    return chosen(load_checks(file or find_file(Path())), names)


def _options(one: Check) -> CaptureOptions:
    """The options of a check in a file as those of the command line."""
    given: dict[str, Any] = dict(one.options)
    for key in ("set", "assume"):
        given[key] = tuple(f"{name}={value}" for name, value in given.get(key, {}).items())
    machine = given.pop("machine", None)
    step = given.pop("step", None)
    return CaptureOptions(**given, machines=(machine,) if machine else (), step=None if step is None else str(step))


def _tried(one: Check, options: CaptureOptions, *, accept: bool, quiet: bool) -> Checked:
    """Capture the step, for each device that assertions name, and try the assertions on it."""
    registry = default_registry()
    rules = parsed(one.assertions, registry)
    if len(options.machines) > 1:
        raise CheckError("a check is of one --machine; name others in assertions, as time(h100) <= 210 ms")
    machine = options.machines[0] if options.machines else None
    if machine is not None and not in_catalogue(split(machine)[1]):
        raise CheckError("a check predicts times for machines of the catalogue, which are the same wherever it runs")
    target = resolve(one.target)

    def capture(how: CaptureOptions) -> Measured:
        step = opened(target, how, quiet=quiet)
        return Measured(step.graph, registry, step.durations, machine)

    def captured_in(place: Place) -> Measured:
        return capture(replace(options, device=place.device, machines=(place.machine,) if place.machine else ()))

    if isinstance(target, File):
        measured = (capture(replace(options, machines=())),) * len(rules)
    elif options.real or options.compiled:  # on the CPU at hand, whatever assertions name
        measured = (capture(options),) * len(rules)
    else:
        measured = measured_in(places(rules, options.device, machine), captured_in)
    baseline = one.baseline if accept or not one.usual or compares(rules) else None
    return checked(rules, measured, baseline=baseline, accept=accept, name=_title(one))


def _title(one: Check) -> str:
    return one.name if one.file is not None else ""
