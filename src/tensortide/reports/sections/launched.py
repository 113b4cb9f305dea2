"""Section ``launched``: a launch of several ranks as it is, and with other values of its own options."""

from __future__ import annotations

from collections.abc import Iterator

from tensortide.parallelism.joined import ExchangeRow
from tensortide.reports.blocks import AnyBlock, Document, Note, Section
from tensortide.reports.of_records import facts, table
from tensortide.reports.render.values import value_text
from tensortide.reports.sections.whole_card import card_table
from tensortide.studies.scale.launched import Launched, LaunchRow
from tensortide.units import format_bytes


def document(found: Launched) -> Document:
    """Show everything that was found."""
    about = f"one training step of {found.ranks} ranks on {found.nodes.name}, by the captured ops of one of them"
    made = Section("launched", "The launch", blocks=tuple(_blocks(found)))
    return made.document(found.name, about, settings={"ranks": found.ranks})


def _blocks(found: Launched) -> Iterator[AnyBlock]:
    first = found.rows[0]
    assert first.step_ns is not None, "the first row is of a Graph"
    low, high = (value_text(ns, "ns") for ns in (first.low_ns, first.high_ns))
    kind = {"fits": "verdict", "unsure": "warning", "too large": "failure", None: "verdict"}[first.fits]
    judged = f" ({first.fits})" if first.fits else ""
    text = (
        f"As launched: {value_text(first.step_ns, 'ns')} a step, 80 % interval {low} to {high}; "
        f"{format_bytes(first.reserved_bytes or 0)} reserved on the captured rank{judged}."
    )
    yield Note(text=text, kind=kind)  # type: ignore[arg-type]  # a row of the table above
    yield facts(first, *LaunchRow.__struct_fields__[1:-1], data=True)
    if len(found.rows) > 1:
        yield table(LaunchRow, found.rows, *LaunchRow.__struct_fields__, key="launches", title="Launches")
    if found.groups:
        remark = "of the captured rank, each among the ranks of its group"
        yield table(ExchangeRow, found.groups, key="groups", remark=remark)
    yield from card_table(found.card)
    yield from (Note(text=text) for text in found.remarks)
    yield Note(text=f"Other degrees: {found.offers}.", kind="advice")
