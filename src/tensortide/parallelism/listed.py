"""Ops over lists of tensors, cut down to some positions of them."""

from __future__ import annotations

from tensortide.graph.model import TENSOR, Call, Value


def lists_of(values: list[Value], tensors: tuple[int, ...]) -> list[tuple[int, ...]]:
    """The tensors of every argument that is a list of several."""
    holes, found = iter(tensors), list[tuple[int, ...]]()
    for value in values:
        if value is TENSOR:
            next(holes)
        elif isinstance(value, tuple) and value and all(item is TENSOR for item in value):
            found.append(tuple(next(holes) for _ in value))
    return found


def taken_at(
    values: list[Value], tensors: tuple[int, ...], here: list[int], length: int, taken: list[int]
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


def written_by(call: Call, arguments: tuple[tuple[str, Value], ...]) -> tuple[int, ...]:
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
