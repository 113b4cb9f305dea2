"""``tensortide check``: assertions over steps, in a file or inline, against limits and accepted baselines."""

from __future__ import annotations

import sys
from dataclasses import replace

from tensortide.cli import github
from tensortide.cli.console import progress
from tensortide.cli.messages import cleaned, one_line, say
from tensortide.cli.show import Files, OutputRequest, show
from tensortide.cli.verb import verb
from tensortide.errors import ExitStatus
from tensortide.measures.checks.request import CheckRequest, answer


@verb
def check(asked: CheckRequest, job: github.JobRequest, files: Files, out: OutputRequest) -> ExitStatus:
    """Check that steps still cost what they may: assertions over metrics, and against accepted baselines.

    Exits with 0 if all assertions hold, and with 1 if one fails. Else with 2 or 3 if a check could not be tried: 2 for
    bad input, a failed capture, a baseline that is missing or of another step, 3 for what cannot be done here. Else
    with 4: an assertion is undecided.
    """
    from tensortide.reports.render.markdown import render_markdown
    from tensortide.reports.sections.checks import documents

    summary = job.file()
    with progress(out.quiet) as working:
        found = answer(asked, working)
    results = [one.result for one in found if one.result is not None]
    errors = [(one.check.name, str(one.error)) for one in found if one.error is not None]
    made = documents(results, errors)
    if not results:  # errors are no table
        files = replace(files, csv=())
    show(made, out, wrote=files.write(made, table=f"{made.sections[0].key}.assertions"))
    if summary is not None:
        github.append(summary, render_markdown(made))
    for name, text in errors:
        say("error", f"{one_line(name)}: {text}")
    if github.in_actions():
        lines = (line for one in found for line in github.annotated(one))
        (sys.stderr if out.json else sys.stdout).write("".join(f"{cleaned(line)}\n" for line in lines))
    if errors and asked.accept:
        say("error", "no baseline was written: a check could not be tried")
    return ExitStatus.of_all(one.status for one in found)
