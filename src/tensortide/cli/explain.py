"""``tensortide explain``: where the cost of one op comes from."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from tensortide.cli.source import CaptureOptions, OutputOptions, Target, console, graph_of, print_json
from tensortide.recorder.resolver import resolver


def explain(
    target: Target,
    op: Annotated[str, Parameter(help="An op by index or name: 42, mm, aten.mm.")],
    /,
    *,
    options: CaptureOptions = CaptureOptions(),  # noqa: B008
    out: OutputOptions = OutputOptions(),  # noqa: B008
) -> None:
    """Explain the cost of one op: its rule, the rule's source line, what was put in and what came out."""
    from tensortide.cost import explain as explained

    graph = graph_of(target, options, quiet=out.quiet)
    number = int(op) if op.removeprefix("-").isdigit() else op
    explanation = explained(graph, number, resolver=resolver)
    if out.json:
        print_json(explanation)
    else:
        console().print(str(explanation), markup=False, soft_wrap=True)
