"""``tensortide compare``: steps beside each other, what differs and where, and limits on it as an exit status."""

from __future__ import annotations

from tensortide.cli.console import progress
from tensortide.cli.show import Files, OutputRequest, show
from tensortide.cli.verb import verb
from tensortide.errors import ExitStatus
from tensortide.measures.differences.request import CompareRequest, answer
from tensortide.recorder.script_command import PREFIX
from tensortide.targets.command import command, typed

PAGE = "compare.html"
"""The page in the command that writes one."""


@verb
def compare(asked: CompareRequest, files: Files, out: OutputRequest) -> ExitStatus:
    """Compare steps: what changed and why, metrics beside each other, and where the difference is: by module, op,
    phase, tensor at the peak, and over time.

    --set goes to all workloads, --set B:batch=2 to one: tensortide compare gpt2 gpt2 --set B:batch=2. --machine adds
    predicted times, beside measured ones where a target has them. Exits with 0 within all thresholds, 1 if one is
    exceeded, 4 if ops without a cost rule leave open whether one is.
    """
    from tensortide.reports.sections.comparison import document

    with progress(out.quiet) as say:
        found = answer(asked, say)
        made = document(found)
        wrote = files.write(made, table="modules" if len(asked.targets) == 2 else "all_metrics")
    first, *rest = sorted(asked.targets, key=lambda one: not one.startswith(PREFIX))
    whole = command("compare", first, *rest, *typed(asked, "targets"), "--html", PAGE)
    show(made, out, wrote=wrote, then=[whole] if files.html is None else [])
    return found.status
