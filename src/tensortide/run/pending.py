"""Ops not yet reported to the engine. While memory is plentiful most results die before an eviction decision is needed,
so bookkeeping is deferred until the budget is nearly reached.

Until then references record them: a tensor of the program refers to the call that made it, the call to its inputs, and
so on. Whatever cannot be needed any more is freed with the last reference.
"""

from __future__ import annotations

from tensortide.run.block import PENDING, Block, Recomputable, Value
from tensortide.run.engine import AWAITED, DEEPEST, LiveEngine

SELDOM = 1000
"""Fewest ops between two searches of the histories for values that can no longer be recomputed."""
NEVER = DEEPEST + 1


class Pending:
    """Pending ops. ``values``: their results that the program holds, by the address of the storage. ``due``: number of
    the op after which histories are searched."""

    def __init__(self, engine: LiveEngine) -> None:
        self.engine = engine
        self.values: dict[int, Value] = {}
        self.due = SELDOM

    def sweep(self, number: int) -> list[tuple[Recomputable, list[Value]]]:
        """End the histories of values that can no longer be recomputed; ``number`` is that of the latest op. Returns
        the calls behind the others, in the order in which they ran, each with the values that it made."""
        behind = self._behind()
        depths: dict[Recomputable, int] = {}
        readers: dict[Block, list[tuple[Recomputable, list[Value]]]] = {}
        for call, made in behind:
            depth = self._depth(call, depths)
            if depth < NEVER:
                depths[call] = depth
            for value in made:
                if value.place < 0:
                    self._overwritten(value.block, readers, depths)
            for near in call.inputs:
                if near is not None and near.block.storage == PENDING:
                    readers.setdefault(near.block, []).append((call, made))
        cut = [value for value in list(self.values.values()) if value.call is not None and value.call not in depths]
        for value in cut:
            value.call = None
        self.due = number + max(SELDOM, 2 * len(behind))
        return self._behind() if cut else behind

    def _overwritten(
        self,
        block: Block,
        readers: dict[Block, list[tuple[Recomputable, list[Value]]]],
        depths: dict[Recomputable, int],
    ) -> None:
        """End the histories of values made from ``block`` so far: directly, or from values that are gone."""
        queue = [block]
        for at in queue:
            for call, made in readers.pop(at, ()):
                for value in made:
                    if value.block is not block:
                        depths.pop(call, None)
                        if self.values.get(value.block.key) is not value:
                            queue.append(value.block)

    def promote(self, number: int) -> None:
        """Report every op to the engine, as if it had been reported when it ran; the engine decides from now on."""
        engine = self.engine
        engine.collect()
        dropped: list[Block] = []
        if self.values:
            calls, peak_bytes = self.sweep(number), engine.peak
            for value in list(self.values.values()):
                if value.call is None:
                    engine.uncount(value.block)
                    engine.add_constant(value.block)
            engine.summed.clear()
            for call, made in calls:
                engine.complete(call, made)
                for value in made:
                    if value.block() is None:
                        engine.references[value.block.storage] = AWAITED
                        dropped.append(value.block)
            self.values.clear()
            engine.peak = peak_bytes
        engine.begin_epoch(dropped)

    def _behind(self) -> list[tuple[Recomputable, list[Value]]]:
        """Calls behind the values that the program holds, in the order in which they ran, each with those it made."""
        found: dict[Recomputable, list[Value]] = {}
        queue = list(self.values.values())
        seen = set(queue)
        for value in queue:
            call = value.call
            if call is None:
                continue
            if call.count:
                fresh = value.place >= 0
                call = value.call = call.part(value.place if fresh else -1 - value.place)
                value.place = 0 if fresh else -1
            if call in found:
                found[call].append(value)
                continue
            found[call] = [value]
            for near in call.inputs:
                if near is not None and near not in seen:
                    seen.add(near)
                    queue.append(near)
        return sorted(found.items(), key=lambda item: item[0].number)

    def _depth(self, call: Recomputable, depths: dict[Recomputable, int]) -> int:
        """Length of the longest chain of ops that recomputing ``call`` may take; NEVER if it cannot be recomputed."""
        engine, deepest = self.engine, 0
        for value in call.inputs:
            if value is None:
                continue
            block = value.block
            storage = block.storage
            if storage != PENDING:
                gone = engine.memories[storage] is not block or engine.dead[storage]
                if gone or (engine.fixed[storage] and block.written > call.number):
                    return NEVER
                depth = engine.depth[storage]
            elif self._lost(value):
                return NEVER
            elif value.call in depths:
                depth = depths[value.call]
            elif self.values.get(block.key) is value:
                depth = 0
            else:
                return NEVER
            deepest = max(deepest, depth)
        return deepest + 1

    def _lost(self, value: Value) -> bool:
        """True if an op that cannot be recomputed has overwritten ``value``."""
        now = self.values.get(value.block.key)
        return now is not None and now is not value and now.call is None and now.block is value.block
