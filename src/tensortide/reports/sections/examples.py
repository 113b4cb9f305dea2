"""Section ``examples``: the built-in workloads, and the hyperparameters of one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tensortide.reports.blocks import AnyBlock, Column, Document, Fact, Facts, Section, Table, Value

__all__ = ["document"]


def document(rows: Sequence[tuple[str, str, str]], hyperparameters: Mapping[str, Value] | None = None) -> Document:
    """List workloads by name, summary and the packages that they need, with the ``hyperparameters`` of a lone one."""
    names, summaries, needs = zip(*rows, strict=True)
    columns = (
        Column("name", "Name", "text", names),
        Column("summary", "Summary", "text", summaries, fold=True),
        Column("needs", "Needs", "text", needs, data=not any(needs)),
    )
    blocks: list[AnyBlock] = [Table(key="examples", columns=columns)]
    if hyperparameters is not None:
        facts = tuple(Fact(name, name, value, "number") for name, value in hyperparameters.items())
        blocks.append(Facts(key="hyperparameters", title="Hyperparameters", rows=facts))
    section = Section("examples", "Built-in workloads", blocks=tuple(blocks))
    return Document(title="Built-in workloads" if hyperparameters is None else names[0], sections=(section,))
