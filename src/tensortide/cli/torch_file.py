"""Option ``--torch`` of ``plan``: the file that runs the step in less memory with unmodified PyTorch."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tensortide.cli.again import capture_again
from tensortide.cli.source import CaptureOptions, settings_of
from tensortide.errors import PlanError
from tensortide.importers.door import resolve
from tensortide.recorder.target import Workload
from tensortide.studies.planning.pins import pinned
from tensortide.write import check_writable, write_files

if TYPE_CHECKING:
    from tensortide.cli.plan import PlanRun
    from tensortide.plans.planned import Planned
    from tensortide.plans.remat.schedule import Recording
    from tensortide.reports.blocks import Section


@dataclass(frozen=True)
class Made:
    """Result of ``--torch``: sections to show, the files written, and whether there is none although one was needed."""

    sections: tuple[Section, ...] = ()
    paths: tuple[Path, ...] = ()
    failed: bool = False


def check_torch_file(target: str, path: Path | None, options: CaptureOptions) -> None:
    """Check that ``target`` can have a file, and that it may be written to ``path``, before any work is done.

    Raises OutputError where a file of another origin is, PlanError for a target that cannot be captured again.
    """
    if path is None:
        return
    if path.suffix != ".py":
        raise PlanError(f"--torch writes Python: give a name that ends with .py, not {path.name}")
    check_writable(path, replaces=_own(path))
    _, why_not = capture_again(resolve(target), options)
    if why_not:
        raise PlanError(f"--torch: {why_not}")


def torch_file_for(target: str, path: Path | None, recording: Recording, planned: Planned, asked: PlanRun) -> Made:
    """Write the file for ``planned`` to ``path``, if one is wanted, of a target that was checked.

    Raises PlanError for a step that no file can change.
    """
    from tensortide.reports.sections.torch_file import section
    from tensortide.studies.torch_file import Asked, make

    if path is None:
        return Made()
    found = resolve(target)
    again, _ = capture_again(found, asked.options)
    assert again is not None
    assert isinstance(found, Workload)
    settings = settings_of(found, asked.options)
    made = make(
        Asked(
            recording,
            planned,
            lambda changes: again(settings, changes, False),
            links=tuple(link for link in asked.search.links() if link.name == "host"),
            keep_random=asked.search.keep_random,
            name=path.stem,
            recompute=not asked.search.no_recompute,
            target=target,
            pinned=pinned(recording.graph, asked.search.pin),
        )
    )
    paths = write_files({path: made.text}, replaces=_own(path)) if made.text else ()
    return Made((section(made),), tuple(paths), not made.text and not made.needless)


def _own(path: Path) -> str:
    """The suffix of ``path`` if ``--torch`` has written the file that is there, which it may replace; else nothing."""
    from tensortide.studies.torch_file.choice import OWN

    made = path.is_file() and OWN in path.read_text(encoding="utf-8", errors="replace")[:1000]
    return path.suffix if made else ""
