"""``tensortide doctor``: which ops of a step have no cost rule, and a rule to complete for each."""

from __future__ import annotations

from tensortide.cli.source import CaptureOptions, OutputOptions, Target, console, graph_of, print_json
from tensortide.recorder.resolver import resolver


def doctor(
    target: Target,
    /,
    *,
    options: CaptureOptions = CaptureOptions(),  # noqa: B008
    out: OutputOptions = OutputOptions(),  # noqa: B008
) -> None:
    """List the ops of a step that have no cost rule, each with a rule ready to complete."""
    from tensortide.cost import count, missing

    graph = graph_of(target, options, quiet=out.quiet)
    unknown = missing(graph, resolver=resolver)
    coverage = count(graph, resolver=resolver).coverage
    if out.json:
        print_json({"coverage": coverage, "missing": unknown})
        return
    screen = console()
    screen.print(coverage.line(), markup=False, soft_wrap=True)
    for item in unknown:
        screen.print(f"\n{item}", markup=False, soft_wrap=True)
    if not unknown:
        screen.print("every op has a cost rule", markup=False)
