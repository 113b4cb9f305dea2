"""The cost of one op: by its rule, as a view, by the pointwise default, by somebody else's formula, or unknown."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Literal, TypeAlias

import msgspec

from tensortide.cost.access import Bytes, interface
from tensortide.cost.kinds import Weights, elements
from tensortide.cost.opcall import OpCall
from tensortide.cost.record import FREE, Cost, summed
from tensortide.cost.registry import Rule, find
from tensortide.errors import TensortideError
from tensortide.graph.model import OpView, Tensor

How: TypeAlias = Literal["rule", "view", "default", "framework", "decomposition", "unknown"]
Resolver: TypeAlias = Callable[[OpView], tuple[Cost, How] | None]

FOREACH = "_foreach_"
DEFAULT_RULE = "default rule: 1 per output element of a pointwise op"
_RULE_FAILURES = (LookupError, TypeError, ValueError, ArithmeticError, AttributeError, TensortideError)


class OpCost(msgspec.Struct, frozen=True, gc=False):
    """The cost of one op and where it comes from. An unknown op has no ``cost``; ``nbytes`` is its interface's."""

    cost: Cost | None
    how: How
    nbytes: int = 0
    note: str = ""


def rule_for(name: str) -> Rule | None:
    """The rule that prices ``namespace::op.overload``, that of the items if it works on lists."""
    return find(name) or find(_item_name(name))


def evaluate(op: OpView, unused: frozenset[int] = frozenset(), resolver: Resolver | None = None) -> OpCost:
    """The cost of ``op``. ``unused`` are the outputs that nobody reads."""
    call = OpCall.of(op, unused)
    if "guessed" in op.call.tags:
        return OpCost(None, "unknown", sum(interface(call)), "the shape of its result is a guess")
    rule, nested = rule_for(call.name), OpCall.of_each(op, unused)
    note = ""
    if rule is not None:
        try:
            cost = _over_nested(rule, call, nested) if nested else apply(rule, call)
        except _RULE_FAILURES as error:
            cost, note = None, f"its rule failed: {type(error).__name__}: {error}"
        if cost is not None and not (call.sparse and (cost.flops or cost.int_ops) and not call.knows_sparse):
            return OpCost(cost, "view" if rule.is_free else "rule", cost.bytes)
    elif op.is_view or ("view" in op.call.tags and not op.call.mutated):
        return OpCost(FREE, "view")
    elif "pointwise" in op.call.tags and call.outputs and (stored := call.stored("out")) is not None:
        cost = _moving(elements(call, stored, Weights(1, 0, 0, 2)), interface(call))
        return OpCost(msgspec.structs.replace(cost, exact=False, reason=DEFAULT_RULE), "default", cost.bytes)
    if call.sparse or nested:  # formulas of others are for dense tensors
        return OpCost(None, "unknown", sum(interface(call)), note or "its rule is for dense tensors")
    found = resolver(op) if resolver is not None else None
    if found is not None:
        cost = found[0] if found[0].bytes else _moving(found[0], interface(call))
        return OpCost(cost, found[1], cost.bytes)
    return OpCost(None, "unknown", sum(interface(call)), note)


def apply(rule: Rule, call: OpCall) -> Cost | None:
    """The cost of ``call`` by ``rule``, with its bytes."""
    listed = call.base.startswith(FOREACH) and not rule.name.partition("::")[2].startswith(FOREACH)
    cost = _over_items(rule, call) if listed else rule.work(call)
    if cost is None or cost.bytes or rule.is_free:
        return cost
    return _moving(cost, (interface if listed else rule.bytes)(call))


def _moving(cost: Cost, moved: Bytes) -> Cost:
    return msgspec.structs.replace(cost, read_bytes=moved.read, written_bytes=moved.written)


def _over_nested(rule: Rule, call: OpCall, each: Sequence[OpCall]) -> Cost | None:
    """The sum of ``rule`` over the tensors that are nested in operands, whose bytes lie one after the other."""
    costs = [rule.work(one) for one in each]
    known = [cost for cost in costs if cost is not None]
    if len(known) < len(costs):
        return None
    moved = Bytes(0, 0) if rule.is_free else rule.bytes(call)
    return _moving(summed(known), moved)


# -- lists ------------------------------------------------------------------------------------------


def _item_name(name: str) -> str:
    """``aten::add_`` for ``aten::_foreach_add_.ScalarList``: the overload only says how lists are given."""
    namespace, _, op = name.partition("::")
    if not op.startswith(FOREACH):
        return ""
    return f"{namespace}::{op.removeprefix(FOREACH).partition('.')[0]}"


_RENAMED = {"addcmul": "value", "addcdiv": "value", "lerp": "weight", "pow": "exponent", "norm": "ord"}


def _over_items(rule: Rule, call: OpCall) -> Cost | None:
    """The sum of ``rule`` over the items of the lists."""
    name = _item_name(call.name)
    base = name.partition("::")[2].removesuffix("_")
    lists = {key: value for key, value in call.arguments.items() if isinstance(value, tuple)}
    single = {key: value for key, value in call.arguments.items() if not isinstance(value, tuple)}
    costs: dict[object, Cost] = {}
    times: Counter[object] = Counter()
    for i in range(max(map(len, lists.values()), default=0)):
        arguments = {key: value[i] for key, value in lists.items() if i < len(value)} | single
        outputs = call.outputs[i : i + 1]
        shapes = tuple((k, v.shape, v.dtype) if isinstance(v, Tensor) else (k, v) for k, v in arguments.items())
        if shapes not in costs:
            renamed = {_argument(base, key): value for key, value in arguments.items()}
            target = renamed.get("self")
            mutated = [target] if not outputs and isinstance(target, Tensor) else []
            cost = rule.work(OpCall(name, renamed, outputs, outputs[0] if outputs else None, mutated=mutated))
            if cost is None:
                return None
            costs[shapes] = cost
        times[shapes] += 1
    return summed(cost * times[shapes] for shapes, cost in costs.items())


def _argument(base: str, name: str) -> str:
    """The name that an argument of the list form has in the plain form."""
    if name in ("scalar", "scalars"):
        return _RENAMED.get(base, "other")
    return {"tensors1": "end", "weights": "weight"}.get(name, name)
