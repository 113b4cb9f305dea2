"""Ops over lists of tensors, cut down to some positions of them."""

from __future__ import annotations

from collections.abc import Sequence

from tensortide.graph.model import TENSOR, Call, Op, Value
from tensortide.parallelism.draft import Draft, replace


def lists_of(values: list[Value], tensors: tuple[int, ...]) -> list[tuple[int, ...]]:
    """The tensors of every argument that is a list of several."""
    holes, found = iter(tensors), list[tuple[int, ...]]()
    for value in values:
        if value is TENSOR:
            next(holes)
        elif isinstance(value, tuple) and value and all(item is TENSOR for item in value):
            found.append(tuple(next(holes) for _ in value))
    return found


def positions_of(call: Call, op: Op) -> list[list[int]]:
    """The tensors at each position of the lists of an op, those of its results too; empty for any other op."""
    lists = lists_of([value for _, value in call.arguments], op.inputs)
    length = max(map(len, lists), default=0)
    lists += lists_of([call.returns], op.outputs)
    return [[each[i] for each in lists if len(each) == length] for i in range(length)]


def cut_down(draft: Draft, op: Op, here: Sequence[int], length: int, joined: dict[int, int]) -> Op:
    """``op`` on the positions ``here`` of its lists of ``length``. Where it joins a list its result is a smaller one,
    which is noted in ``joined``."""
    call = draft.calls[op.call]
    inputs, outputs = list[int](), list[int]()
    values = _taken_at([value for _, value in call.arguments], op.inputs, here, length, inputs)
    returns = _taken_at([call.returns], op.outputs, here, length, outputs)[0]
    arguments = tuple((name, value) for (name, _), value in zip(call.arguments, values, strict=True))
    changed = replace(call, arguments=arguments, returns=returns, mutated=_written_by(call, arguments))
    if call.returns is TENSOR and op.outputs:
        shape = tuple(len(here) if size == length else size for size in draft.tensors[op.outputs[0]].shape)
        outputs = [joined.setdefault(op.outputs[0], draft.fresh(op.outputs[0], shape))]
    return replace(op, call=draft.call(changed), inputs=tuple(inputs), outputs=tuple(outputs))


def _taken_at(
    values: list[Value], tensors: tuple[int, ...], here: Sequence[int], length: int, taken: list[int]
) -> list[Value]:
    """``values`` with lists of ``length`` cut down to the positions ``here``; fills ``taken`` with their tensors."""
    holes, found = iter(tensors), list[Value]()
    for value in values:
        if value is TENSOR:
            taken.append(next(holes))
            found.append(value)
        elif isinstance(value, tuple) and value and all(item is TENSOR for item in value):
            group = [next(holes) for _ in value]
            kept = [group[i] for i in here] if len(group) == length else group
            taken += kept
            found.append((TENSOR,) * len(kept))
        elif isinstance(value, tuple) and len(value) == length and length > 1:
            found.append(tuple(value[i] for i in here))
        else:
            found.append(value)
    return found


def _written_by(call: Call, arguments: tuple[tuple[str, Value], ...]) -> tuple[int, ...]:
    """The holes that the call with shorter lists writes: all of every argument that ``call`` writes."""
    written, before, after = set(call.mutated), 0, 0
    found: list[int] = []
    for (_, old), (_, new) in zip(call.arguments, arguments, strict=True):
        many = 1 if old is TENSOR else len(old) if isinstance(old, tuple) and TENSOR in old else 0
        few = 1 if new is TENSOR else len(new) if isinstance(new, tuple) and TENSOR in new else 0
        if before in written and many:
            found += range(after, after + few)
        before, after = before + many, after + few
    return tuple(found)
