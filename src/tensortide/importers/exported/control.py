"""Higher-order ops: conditionals become branches, scans and while loops become loops, wrappers become their bodies."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

from tensortide.errors import GraphError
from tensortide.graph import Handle, Out
from tensortide.graph.handles import Given
from tensortide.importers.exported.memory import bases, writes
from tensortide.importers.exported.program import Arg, Block, Node, Ref, blocks
from tensortide.importers.trips import NOTHING, Counting

if TYPE_CHECKING:
    from tensortide.importers.exported.build import Building

Values: TypeAlias = Mapping[str, Handle]
Made: TypeAlias = "list[Handle | None]"
_HIGHER = "higher_order."
_BASE_INDEX = re.compile(r"_(\w+)_base_index")


def expand(to: Building, node: Node, values: Values) -> Made | None:
    """Append the ops of a higher-order op and return its results; None for a node that is an op by itself."""
    kind = node.op.removeprefix(_HIGHER).partition(".")[0] if node.op.startswith(_HIGHER) else ""
    if kind in ("auto_functionalized", "auto_functionalized_v2"):
        return list(_functionalized(to, node, values))
    make = _KINDS.get(kind)
    if make is None or not blocks(tuple(value for _, value in node.arguments)):
        return None
    return make(to, node, values)


# -- each kind ---------------------------------------------------------------------------------------


def _wrapped(to: Building, node: Node, values: Values) -> Made:
    """The body of a wrapper, on the arguments that follow it."""
    after, body = _after_block(node)
    if "invoke_subgraph" in node.op:
        after = after[1:]  # its identifier
    return to.run(body, _operands(to, after, values))


def _cond(to: Building, node: Node, values: Values) -> Made:
    """Both arms on the same operands; what follows reads the results of the first."""
    first, second = blocks(tuple(value for _, value in node.arguments))[:2]
    operands = _operands(to, _after_block(node)[0], values)
    arm = to.b.conditional()
    results = []
    for number, body in enumerate((first, second)):
        with arm(number):
            results.append(to.run(body, operands))
    return results[0]


def _while_loop(to: Building, node: Node, values: Values) -> Made:
    """Condition and body, as often as a counter says, or data decide."""
    condition, body = blocks(tuple(value for _, value in node.arguments))[:2]
    carried, extra = (_listed(part) for part in (*_after_block(node)[0], (), ())[:2])
    trips = trips_of(to.block, condition, body, len(carried), (*carried, *extra))
    return _looped(to, node, (condition, body), *_parts(to, node, values, 2), trips=trips)


def _scan(to: Building, node: Node, values: Values) -> Made:
    """The body for each row of what is scanned; further results are stacked."""
    carried, rows, extra = _parts(to, node, values, 3)
    return _looped(to, node, (_after_block(node)[1],), carried, extra, rows)


def _map(to: Building, node: Node, values: Values) -> Made:
    """The body for each row; its results are stacked."""
    rows, extra = _parts(to, node, values, 2)
    return _looped(to, node, (_after_block(node)[1],), [], extra, rows)


def _associative_scan(to: Building, node: Node, values: Values) -> Made:
    """One row fewer combinations of two rows than there are, as an order without extra work has them."""
    rows, extra = _parts(to, node, values, 2)
    return _looped(to, node, (_after_block(node)[1],), [], extra, rows, each=2)


def _looped(
    to: Building, node: Node, bodies: Sequence[Block], carried: Made, extra: Made, rows: Made | None = None,
    *, trips: int | None = None, each: int = 1,
) -> Made:  # fmt: skip
    """Append a loop of ``bodies``, of which the last returns what is carried next, then rows to be stacked. They take
    what is carried, the ``rows`` of a trip (or of two, ``each``, in as many trips as there are pairs), and more."""
    trips = trips if rows is None else _length(rows)
    stacks = [] if rows is None or trips is None else _stacks(to, bodies[-1], len(carried), trips)
    results = carried
    with to.b.loop(node.name, trips if trips is None else max(trips - each + 1, 0)) as carry:
        reads = _entered(to, carried)
        taken = [row for _ in range(each) for row in map(_row(to), rows or ())]
        for body in bodies:
            results = to.run(body, [*reads, *taken, *extra])
        for before, after in zip(reads, results, strict=False):
            if before is not None and after is not None:
                carry(before, after)
        _store(to, stacks, results[len(carried) :])
    return [*(carried if trips == 0 else results[: len(carried)]), *stacks]


def _functionalized(to: Building, node: Node, values: Values) -> Sequence[Handle | None]:
    """A custom op that writes arguments, in the form that returns copies instead: the op itself, by its own name."""
    (_, operator), *rest = node.arguments or (("", None),)
    name = str(getattr(operator, "value", operator)).removeprefix("torch.ops.")
    bases = [each for key, value in rest if key == "_all_bases" for each in _listed(value)]
    arguments: list[tuple[str, Arg]] = []
    for key, value in rest:
        found = _BASE_INDEX.fullmatch(key)
        if found and isinstance(value, int) and 0 <= value < len(bases):
            arguments.append((found[1], bases[value]))
        elif not key.startswith("_"):
            arguments.append((key, value))
    types = to.program.body.types
    outs = [Out(types[each].shape, types[each].dtype) if each in types else None for each in node.outputs]
    given = [(key, to.value(value, values)) for key, value in arguments]
    return to.b.call(name, given, outs=outs, label=node.name)


_KINDS: dict[str, Callable[[Building, Node, Values], Made]] = {
    **dict.fromkeys(
        ("wrap", "wrap_with_set_grad_enabled", "wrap_with_autocast", "wrap_activation_checkpoint", "hints_wrapper",
         "tag_activation_checkpoint", "invoke_subgraph", "strict_mode", "autograd_function_apply", "run_const_graph"),
        _wrapped,
    ),
    "cond": _cond,
    "while_loop": _while_loop,
    "scan": _scan,
    "map_impl": _map,
    "map": _map,
    "associative_scan": _associative_scan,
}  # fmt: skip


# -- parts of them -----------------------------------------------------------------------------------


def _after_block(node: Node) -> tuple[list[Arg], Block]:
    """The arguments behind the blocks of a node, and the first block. Raises GraphError if there is none."""
    items = [value for _, value in node.arguments]
    places = [at for at, value in enumerate(items) if isinstance(value, Block)]
    if not places:
        raise GraphError("it has no graph")
    body = items[places[0]]
    assert isinstance(body, Block)
    return items[places[-1] + 1 :], body


def _listed(value: Arg) -> tuple[Arg, ...]:
    return value if isinstance(value, tuple) else () if value is None else (value,)


def _handle(to: Building, values: Values) -> Callable[[Arg], Handle | None]:
    return lambda value: to.tensor(value.name, values) if isinstance(value, Ref) else None


def _parts(to: Building, node: Node, values: Values, count: int) -> list[Made]:
    """The first lists of values behind the blocks of a node."""
    handle = _handle(to, values)
    return [[*map(handle, _listed(part))] for part in (*_after_block(node)[0], *[()] * count)[:count]]


def _operands(to: Building, given: Sequence[Arg], values: Values) -> list[Handle | None]:
    """Values that a block takes, lists of them taken apart."""
    flat = [item for value in given for item in (value if isinstance(value, tuple) else (value,))]
    return [*map(_handle(to, values), flat)]


def _length(rows: Sequence[Handle | None]) -> int:
    """The number of rows of what is scanned."""
    found = next((handle for handle in rows if handle is not None and handle.shape), None)
    if found is None:
        raise GraphError("nothing that it scans has rows")
    return found.shape[0]


def _row(to: Building) -> Callable[[Handle | None], Handle | None]:
    """A function that takes the row of this iteration, as a view."""

    def take(rows: Handle | None) -> Handle | None:
        if rows is None or not rows.shape:
            return rows
        out = Out(rows.shape[1:], rows.dtype, view_of=rows)
        return to.b.call("aten.select.int", [("self", rows), ("dim", 0), ("index", 0)], positional=3, outs=[out])[0]

    return take


def _entered(to: Building, carried: Sequence[Handle | None]) -> list[Handle | None]:
    """Each value that a loop carries, as the body reads it."""
    return [
        None if one is None else to.b.call("aten.alias.default", [("self", one)], positional=1, outs=[_same(one)])[0]
        for one in carried
    ]


def _same(handle: Handle) -> Out:
    return Out(handle.shape, handle.dtype, view_of=handle)


def _stacks(to: Building, body: Block, first: int, count: int) -> Made:
    """Memory for the rows that a body returns from its result ``first`` on, ``count`` of each."""
    kinds = [body.types.get(one.name) if isinstance(one, Ref) else None for one in body.outputs[first:]]
    outs = [None if kind is None else Out((count, *kind.shape), kind.dtype) for kind in kinds]
    return [
        None if out is None else to.b.call("aten.empty.memory_format", [("size", tuple(out.shape))], outs=[out])[0]
        for out in outs
    ]


def _store(to: Building, stacks: Sequence[Handle | None], rows: Sequence[Handle | None]) -> None:
    """Copy the rows of this iteration into their places."""
    for stack, row in zip(stacks, rows, strict=False):
        if stack is not None and row is not None:
            place = _row(to)(stack)
            assert place is not None
            arguments: list[tuple[str, Given]] = [("self", place), ("src", row)]
            to.b.call("aten.copy_.default", arguments, positional=2, outs=[_same(place)], mutates=[place])


# -- trips of loops ---------------------------------------------------------------------------------
# Trips of a ``while_loop``: a counter that starts at a number of the program and is compared with one.


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
