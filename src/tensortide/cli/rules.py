"""``tensortide count --explain`` and ``--missing``: the cost rules of a step's ops."""

from __future__ import annotations

from tensortide.cli.show import show
from tensortide.cli.source import OutputOptions, console
from tensortide.cost import count, explain, missing
from tensortide.graph import Graph
from tensortide.recorder.resolver import resolver

__all__ = ["explain_op", "list_missing"]


def explain_op(graph: Graph, op: str, out: OutputOptions) -> None:
    """Print the rule of one op, the rule's source line, what was put in and what came out."""
    from tensortide.reports.sections.rules import explanation

    found = explain(graph, op, resolver=resolver)
    if out.json:
        show(explanation(found, title=graph.meta.workload), out)
    else:
        console().print(str(found), markup=False, soft_wrap=True)


def list_missing(graph: Graph, out: OutputOptions) -> None:
    """Print the ops of a step that have no cost rule, each with a rule ready to complete."""
    from tensortide.reports.sections.rules import missing_rules

    unknown = missing(graph, resolver=resolver)
    coverage = count(graph, resolver=resolver).coverage
    if out.json:
        show(missing_rules(unknown, coverage, title=graph.meta.workload), out)
        return
    screen = console()
    screen.print(coverage.line(), markup=False, soft_wrap=True)
    for item in unknown:
        screen.print(f"\n{item}", markup=False, soft_wrap=True)
    if not unknown:
        screen.print("every op has a cost rule", markup=False)
