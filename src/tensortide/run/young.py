"""Ops that the engine has not been told of: as long as there is room, most of what they make is dropped before anybody
has to decide what goes, and books about it would be in vain.

What they made is kept by reference: a tensor that the program holds, the call that made it, what that call read, and so
on. Whatever nobody can need any more goes by itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tensortide.run.block import YOUNG, Block, Value
from tensortide.run.engine import AWAITED, DEEPEST

if TYPE_CHECKING:
    from tensortide.run.again import Again
    from tensortide.run.engine import LiveEngine

SELDOM = 1000
"""At least so many ops go by before histories are looked through for what can no longer be made again."""
NEVER = DEEPEST + 1


class Young:
    """``values``: what the program holds of these ops, by the address of its storage. ``due``: the number of the op
    after which histories are to be looked through."""

    def __init__(self, engine: LiveEngine) -> None:
        self.engine = engine
        self.values: dict[int, Value] = {}
        self.due = SELDOM

    def sweep(self, number: int) -> list[tuple[Again, list[Value]]]:
        """End the histories of what can no longer be made again, op ``number`` being the latest. Returns the calls
        behind the rest, in the order in which they ran, and what of that each has made."""
        behind = self._behind()
        made_by = dict(behind)
        depths: dict[Again, int] = {}
        readers: dict[Block, list[Again]] = {}
        for call, made in behind:
            depth = self._depth(call, depths)
            if depth < NEVER:
                depths[call] = depth
            for value in made:
                if value.place < 0:
                    self._overwritten(value.block, readers, made_by, depths)
            for near in call.inputs:
                if near is not None and near.block.storage == YOUNG:
                    readers.setdefault(near.block, []).append(call)
        cut = [value for value in list(self.values.values()) if value.call is not None and value.call not in depths]
        for value in cut:
            value.call = None
        self.due = number + max(SELDOM, 2 * len(behind))
        return self._behind() if cut else behind

    def _overwritten(
        self,
        block: Block,
        readers: dict[Block, list[Again]],
        made_by: dict[Again, list[Value]],
        depths: dict[Again, int],
    ) -> None:
        """What was made of ``block`` so far cannot be made again, whether directly or of what is no longer there."""
        queue = [block]
        for at in queue:
            for call in readers.pop(at, ()):
                for value in made_by[call]:
                    if value.block is not block:
                        depths.pop(call, None)
                        if self.values.get(value.block.key) is not value:
                            queue.append(value.block)

    def promote(self, number: int) -> None:
        """Tell the engine of everything, as if it had known from the start; it decides from here on."""
        engine = self.engine
        engine.collect()
        dropped: list[Block] = []
        if self.values:
            calls, peak_bytes = self.sweep(number), engine.peak
            for value in list(self.values.values()):
                if value.call is None:
                    engine.uncount(value.block)
                    value.block.storage = engine.add_constant(value.block.nbytes, value.block)
            engine.summed.clear()
            for call, made in calls:
                enter(engine, call, made)
                for value in made:
                    if value.block() is None:
                        engine.references[value.block.storage] = AWAITED
                        dropped.append(value.block)
            self.values.clear()
            engine.peak = peak_bytes
        engine.begin_epoch(dropped)

    def _behind(self) -> list[tuple[Again, list[Value]]]:
        """The calls behind what the program holds, in the order in which they ran, and what of that each has made."""
        found: dict[Again, list[Value]] = {}
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

    def _depth(self, call: Again, depths: dict[Again, int]) -> int:
        """Ops in the longest chain that may have to be run to run ``call`` again; NEVER if that cannot be done."""
        engine, deepest = self.engine, 0
        for value in call.inputs:
            if value is None:
                continue
            block = value.block
            storage = block.storage
            if storage != YOUNG:
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
        """Whether an op that cannot be run again has overwritten it."""
        now = self.values.get(value.block.key)
        return now is not None and now is not value and now.call is None and now.block is value.block


def enter(engine: LiveEngine, call: Again, made: list[Value]) -> None:
    """Tell ``engine`` of ``call``: of what it has made ``made`` can be needed. It knows of all that the call read."""
    inputs = [engine.newest(value.block.storage) for value in dict.fromkeys(call.inputs) if value is not None]
    fresh = sorted((value for value in made if value.place >= 0), key=lambda value: value.place)
    for value in fresh:
        engine.uncount(value.block)
    overwritten = [value.block.storage for value in made if value.place < 0]
    outputs = engine.complete(inputs, call, [(value.block.nbytes, value.block) for value in fresh], overwritten)
    call.fresh = [(value.place, output) for value, output in zip(fresh, outputs, strict=False)]
    for value, output in zip(fresh, outputs, strict=False):
        value.block.storage = engine.storage[output]
    for value in made:
        engine.last_access_ns[value.block.storage] = value.block.seen_ns
        value.call = None
    call.held = ()
