"""Table ``whole_card``: the memory of the card by what takes it, each row an interval with its source."""

from __future__ import annotations

from collections.abc import Sequence

from tensortide.reports.blocks import Table
from tensortide.reports.of_records import table
from tensortide.studies.fit.whole_card import CardRow


def card_table(rows: Sequence[CardRow]) -> list[Table]:
    """Make the table; none where nothing is known of the card."""
    return [table(CardRow, rows, *CardRow.__struct_fields__, key="whole_card")] if rows else []
