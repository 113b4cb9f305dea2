"""Plans known before a search, and what became of them as rivals of its result."""

from __future__ import annotations

from typing import Annotated, Literal, NamedTuple, TypeAlias

import msgspec

from tensortide.shown import Show

Kind: TypeAlias = Literal["as recorded", "modules", "partitioner", "online policy", "static plan", "given", "order"]
"""Kinds of plans known before the search. ``given``: by the caller; ``order``: each op once, in another order."""


class Known(NamedTuple):
    """A plan known before the search: its ops in order, or the ``reason`` why there is none."""

    name: str
    kind: Kind
    sequence: list[int] | None = None
    reason: str = ""


class Rival(msgspec.Struct, frozen=True):
    """A known plan as replayed. ``step_ns`` and ``peak_bytes`` are those of its replay, None if there is no plan
    to play; ``reason``: why it is no answer, empty if it is one."""

    name: str
    kind: Kind
    step_ns: Annotated[int | None, Show("Step")] = None
    peak_bytes: Annotated[int | None, Show("Peak")] = None
    reason: str = ""

    @property
    def title(self) -> Annotated[str, Show("Plan")]:
        """Its name, and of a policy or a static plan the kind."""
        if self.kind == "as recorded":
            return "no budget"
        return f"{self.kind}: {self.name}" if self.kind in ("online policy", "static plan") else self.name
