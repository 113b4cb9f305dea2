"""Sections of steps that ran in processes of this machine: what all of them show."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tensortide.reports.blocks import Column, Fact, Facts, Note, Section, Table
from tensortide.reports.pictures import Spans

__all__ = ["LAST_STEP", "facts", "losses_table", "run_section"]

LAST_STEP = "The last step, measured on this machine"


def run_section(
    key: str,
    verdict: Note,
    facts: Facts,
    tables: Sequence[Table],
    measured: Spans,
    held: Mapping[str, tuple[float, float]],
) -> Section:
    """Make the section: ``tables`` are the losses, what each rank did, and others; ``measured`` is the last step,
    ``held`` the numbers that one process held as the ranks do."""
    return Section(key, "Run on this machine", blocks=(verdict, *_held(held), facts, *tables, measured))


def _held(held: Mapping[str, tuple[float, float]]) -> list[Note]:
    """Say which numbers of the step would have changed from one step to the next."""
    if not held:
        return []
    op, (old, new) = next(iter(held.items()))
    more = f" (and of {len(held) - 1:,} more kinds of ops)" if len(held) > 1 else ""
    text = (
        f"The step changes its numbers from one step to the next, as by a learning-rate schedule: {op} has {old:g}, "
        f"then {new:g}{more}. Every process, the single one too, repeats those of the captured step."
    )
    return [Note(text=text)]


def facts(largest_share: float | None, *, steps: int, step_ns: int, more: Sequence[Fact] = ()) -> Facts:
    """Show the steps, the time of the shortest, and the largest difference of a loss from one process, as a share of it
    (None: there are none)."""
    rows = (
        Fact("steps", "Steps", steps, "count"),
        Fact("measured_step", "Shortest step, measured", step_ns, "ns"),
        Fact("loss_difference_share", "Largest relative difference of a loss", largest_share, "number"),
        *more,
    )
    return Facts(rows=rows)


def losses_table(losses: Sequence[float], alone: Sequence[float], remark: str, *more: Column) -> Table:
    """Show the loss of each step beside that of one process."""
    count = len(losses)
    columns = (
        Column("step", "Step", "count", tuple(range(1, count + 1))),
        Column("loss", "Loss, in processes", "amount", tuple(losses)),
        Column("alone", "in one process", "amount", tuple(alone[:count]) or (None,) * count),
        *more,
    )
    return Table(key="losses", title="Losses", remark=remark, columns=columns)
