"""Ops of a followed step that the compiled core runs by itself, and that are compared with the Graph afterwards."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tensortide.run.block import PENDING
from tensortide.run.tables import NOTHING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tensortide.run.block import Block
    from tensortide.run.runtime import Runtime, Unwatched
    from tensortide.run.step_match import Expected, Origin


class UnwatchedOps:
    """Lets ops of a step of ``expected`` ops run unwatched under ``runtime``, once it has seen each of them: what ran
    is the same op with the same Room, of which there is one for each kind of call."""

    def __init__(self, runtime: Runtime, expected: Sequence[Expected]) -> None:
        self.runtime, self.expected = runtime, expected
        self.under_way = False
        self._seen: list[tuple[Any, Any] | None] = [None] * len(expected)
        self._ran: list[Unwatched] = []

    def see(self, op: int, call: tuple[Any, Any]) -> None:
        """Remember that op ``op`` of the graph has just run, watched: its function and its Room."""
        self._seen[op] = call

    def begin(self, count: int) -> bool:
        """Let the next ``count`` ops run unwatched; False if that cannot be."""
        if count < 1 or self.runtime.unwatch is None or self._seen[-1] is None:
            return False
        self.under_way = True
        self.runtime.unwatch(count, self._ran)
        return True

    def end(self) -> list[Unwatched]:
        """Watch again. Returns what ran meanwhile."""
        self.under_way = False
        ran, self._ran = self._ran, []
        if self.runtime.unwatch is not None:
            self.runtime.unwatch(0, self._ran)
        return ran

    def compare(self, at: int, ran: Sequence[Unwatched], live: Mapping[int, int]) -> tuple[int, dict[int, Block]]:
        """Count the first of ``ran`` that are the ops of the graph from ``at`` on. Returns their number, and the Blocks
        of the graph's storages that they had. ``live``: the engine's numbers of the storages before them."""
        memories = self.runtime.engine.memories
        found: dict[int, Block] = {}
        for op, (func, room, inputs, outputs) in enumerate(ran, at):
            expected = self.expected[op]
            if self._seen[op] != (func, room):
                return op - at, found
            for storages, blocks in ((expected.inputs, inputs), (expected.outputs, outputs)):
                if blocks is None or not storages:
                    continue
                if len(blocks) != len(storages):
                    return op - at, found
                for storage, block in zip(storages, blocks, strict=True):
                    if block is None:  # it has no memory
                        continue
                    if storage not in found and storage in live and memories[live[storage]] is not block:
                        return op - at, found
                    if found.setdefault(storage, block) is not block:
                        return op - at, found
        return len(ran), found

    def beginning(
        self, ran: list[Unwatched], known: Mapping[int, int], least: int
    ) -> tuple[list[Unwatched], dict[int, Block]]:
        """The latest ops of ``ran`` that are the first ones of the graph, all of them or at least ``least``, and their
        Blocks as ``compare`` has them; none if there are no such. ``known``: the engine's numbers of what there is
        before a step. After one that was given up, by an exception say, the next one may begin unwatched."""
        for begin in range(max(1, len(ran) - least + 1)):
            agreed, blocks = self.compare(0, ran[begin:], known)
            if agreed == len(ran) - begin:
                return ran[begin:], blocks
        return [], {}

    def origins(self, at: int, count: int, blocks: Mapping[int, Block]) -> list[tuple[int, Origin]]:
        """List the ops of the engine that made the values in ``blocks``: for each the op of the graph, and its origin.
        The latest ``count`` ops of the program were those of the graph from ``at`` on."""
        engine = self.runtime.engine
        first = engine.ops - count
        found: list[tuple[int, Origin]] = []
        for block in blocks.values():
            if block.storage == PENDING or engine.memories[block.storage] is not block:
                continue
            for value in engine.values[block.storage]:
                made = engine.op_of[value]
                call = engine.calls[made] if made != NOTHING else None
                if call is not None and call.number >= first:
                    found.append((at + call.number - first, (made, call)))
        return found
