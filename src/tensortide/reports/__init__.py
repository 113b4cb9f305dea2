"""Contents and forms of a report: blocks, their sections, and a renderer for each medium."""

from __future__ import annotations

from numbers import Integral
from typing import TYPE_CHECKING, Any

from tensortide.errors import check_argument
from tensortide.recorder import resolver

if TYPE_CHECKING:
    import os

    from tensortide.cost import Resolver
    from tensortide.reports.blocks import Document
    from tensortide.timing import Durations

__all__ = ["report"]


def report(
    target: Any,
    *,
    durations: Durations | str | os.PathLike[str] | None = None,
    top: int = 15,
    depth: int = 3,
    strict: bool = False,
    resolver: Resolver | None = resolver,
    **options: Any,
) -> Document:
    """Report what the step ``target`` costs: every section that has something to show about it.

    >>> tensortide.report("train.py:mlp", machine="t4")  # doctest: +SKIP

    The loops of a graph that has some are written out: every iteration counts, in costs and in memory over time. The
    Document prints its answer, and shows it in a notebook; ``.full()`` has every section in its place, ``.page()`` is
    the page, and ``tensortide.reports.render`` has the other forms.

    Args:
        target: a Graph, or any other target.
        durations: of the ops, or a file of them; of a Graph without them the axis of curves is the number of the op.
        top: rows that text shows of each list.
        depth: levels of modules that text shows.
        strict: an op without a cost rule is an error (UnknownCost).
        resolver: asked for the cost of ops that have no rule (default: PyTorch); see ``tensortide.count``.
        options: of the capture and the times of any other target, as the command line has them (``machine``, ``set``,
            ``device``, ...).
    """
    from dataclasses import replace

    from tensortide.graph import Graph, unrolled
    from tensortide.reports.sections import Step, report_of
    from tensortide.timing import Durations

    check_argument("top", top, (Integral,), "a number of rows, 0 or more", least=0)
    check_argument("depth", depth, (Integral,), "a number of levels, 0 or more", least=0)
    known = durations if isinstance(durations, Durations) else None
    if isinstance(target, Graph) and not options and durations is known:
        return report_of(Step(unrolled(target), known, resolver, strict, top, depth))
    from tensortide.importers.door import as_text
    from tensortide.reports.request import ReportRequest, answer
    from tensortide.targets.keywords import request_of
    from tensortide.targets.requests import TimedRequest

    given = options if durations is known else {**options, "durations": durations}
    step = request_of("report", TimedRequest, given)
    found = answer(ReportRequest(target=as_text(target), step=step, top=top, depth=depth, strict=strict))
    return report_of(replace(found, resolver=resolver, durations=known or found.durations))
