"""Trips of a ``while_loop``: a counter that starts at a number of the program and is compared with one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from tensortide.importers.exported.memory import bases, writes
from tensortide.importers.exported.program import Arg, Block, Ref
from tensortide.importers.trips import NOTHING, Counting

_Place: TypeAlias = tuple[int, Arg]
"""A value outside the loop (0), in its condition (1) or in its body (2)."""
_NAMES = {
    **{name: name for name in ("lt", "le", "gt", "ge", "ne", "eq", "add", "sub")},
    **dict.fromkeys(("__and__", "logical_and", "bitwise_and"), "and"),
    **dict.fromkeys(("__or__", "logical_or", "bitwise_or"), "or"),
    **dict.fromkeys(("logical_not", "bitwise_not"), "not"),
    **dict.fromkeys(("alias", "clone", "detach", "detach_", "lift_fresh", "lift_fresh_copy"), "same"),
}
_FILLED: dict[str, Arg] = {"zeros": 0, "ones": 1}
"""Ops that make a tensor of one number, and that number."""
_PLACES = {"full": 1, "scalar_tensor": 0}
"""Ops that make a tensor of one number which is an argument, and the place of that."""
_COUNTERS = ("int64", "int32")


def trips_of(outer: Block, condition: Block, body: Block, carried: int, given: Sequence[Arg]) -> int | None:
    """Count how often the body runs on the values ``given``, of which so many are ``carried``; None where data decide
    it."""
    if not len(condition.inputs) == len(body.inputs) == len(given) or len(body.outputs) != carried:
        return None
    return _Loop((outer, condition, body), carried, given).counting.trips((1, condition.outputs[0]))


class _Loop:
    """A loop's condition and body, and the block around it, as counting reads them: what the condition takes is what
    the body does."""

    def __init__(self, blocks: tuple[Block, Block, Block], carried: int, given: Sequence[Arg]) -> None:
        self.blocks, self.count, self.given = blocks, carried, given
        self.makers = [
            {name: node for node in block.nodes for name in node.outputs if name not in changed}
            for block, changed in zip(blocks, map(_changed, blocks), strict=True)
        ]
        self.counting = Counting(self.made, self.number, self.carried)

    def made(self, value: _Place) -> tuple[str, Sequence[_Place]]:
        side, arg = value
        if not isinstance(arg, Ref):
            return NOTHING
        taken = self.blocks[side].inputs
        if side and arg.name in taken:
            place = taken.index(arg.name)
            name = self.blocks[2].inputs[place]
            return "same", [(2, Ref(name)) if name is not None and place < self.count else (0, self.given[place])]
        node = self.makers[side].get(arg.name)
        if node is None or not node.op.startswith("aten.") or node.argument("alpha") not in (None, 1):
            return NOTHING
        return _NAMES.get(node.base, ""), [(side, given) for _, given in node.arguments[:2]]

    def number(self, value: _Place) -> int | None:
        """A number of the program, or a tensor filled with one."""
        side, arg = value
        node = self.makers[side].get(arg.name) if isinstance(arg, Ref) else None
        if node is not None and not self.blocks[side].types[node.name].shape:
            if node.base in _FILLED:
                arg = _FILLED[node.base]
            elif node.base in _PLACES:
                arg = node.arguments[_PLACES[node.base]][1]
        return arg if isinstance(arg, int) and not isinstance(arg, bool) else None

    def carried(self, value: _Place) -> tuple[int | None, _Place] | None:
        side, arg = value
        body = self.blocks[2]
        if side < 2 or not isinstance(arg, Ref) or arg.name not in body.inputs[: self.count]:
            return None
        place = body.inputs.index(arg.name)
        counts = body.types[arg.name].dtype in _COUNTERS
        return self.counting.known((0, self.given[place])) if counts else None, (2, body.outputs[place])


def _changed(block: Block) -> set[str | None]:
    """The tensors in whose storage an op of ``block`` writes: what made them does not say what they hold."""
    homes: dict[str, str] = {}
    written = set[str]()
    for node in block.nodes:
        for name, home in zip(node.outputs, bases(node, block.types), strict=False):
            if name is not None and home is not None:
                homes[name] = homes.get(home, home)
        if node.base != "detach_":
            written.update(homes.get(name, name) for name in writes(node))
    return {name for node in block.nodes for name in node.outputs if name and homes.get(name, name) in written}
