"""The two programs of a planned Joint: the forward pass, which saves what the backward pass uses, and that."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tensortide.plans.model import Plan
from tensortide.run.generated.joint import Joint
from tensortide.run.generated.lowering import Break, Free, Instruction, Run, lowered, states_kept
from tensortide.run.generated.source import Function, Segment, function_of


@dataclass(frozen=True, slots=True)
class Halves:
    """``forward`` takes the inputs and returns the outputs, then the values of ``saved``; ``backward`` takes those and
    the tangents, and returns the gradients. ``saved``: the tensor of each, None for the state of a random generator.
    ``states``: random ops whose generator's state is kept for their next run. Without a backward pass nothing is saved.
    """

    forward: Function
    backward: Function | None
    saved: tuple[int | None, ...]
    states: int


def halves_of(joint: Joint, plan: Plan) -> Halves:
    """The programs that run ``plan``."""
    both = joint.between is not None
    wanted = joint.gradients if both else joint.outputs
    kept = [tensor for tensor in wanted if tensor is not None]
    breaks = [] if joint.between is None else [joint.between]
    instructions, names = lowered(joint.graph, plan, joint.given, breaks, kept)
    last = _spread(wanted, names)
    states = states_kept(instructions)
    if not both:
        segment = Segment("forward", joint.names, instructions, last, joint.apart)
        return Halves(function_of(segment, joint.graph, joint.codes, joint.places), None, (), states)
    at = next(number for number, each in enumerate(instructions) if isinstance(each, Break))
    before, boundary, after = instructions[:at], instructions[at], instructions[at + 1 :]
    assert isinstance(boundary, Break)
    tensors = _tensors(joint, [*before, *after])
    used = dict.fromkeys([*_used(after), *names])
    saved = tuple([name for name in used if name not in boundary.outputs and name not in _defined(after)])
    ends = _spread(joint.outputs, boundary.inputs)
    forward = Segment("forward", joint.names, before, (*ends, *saved), joint.apart)
    backward = Segment("backward", (*saved, *boundary.outputs), _live(after, {*saved, *boundary.outputs}), last)
    return Halves(
        function_of(forward, joint.graph, joint.codes, joint.places),
        function_of(backward, joint.graph, joint.codes, joint.places),
        tuple([tensors.get(name) for name in saved]),
        states,
    )


def _spread(tensors: Sequence[int | None], names: Sequence[str]) -> tuple[str | None, ...]:
    """``names`` at the places of ``tensors`` that are there."""
    rest = iter(names)
    return tuple([None if tensor is None else next(rest) for tensor in tensors])


def _tensors(joint: Joint, instructions: Sequence[Instruction]) -> dict[str, int]:
    """The tensor of each name."""
    found = {name: tensor for tensor, name in joint.given.items()}
    for each in instructions:
        if isinstance(each, Run):
            outputs = joint.graph.ops[each.op].outputs
            found.update({name: t for name, t in zip(each.outputs, outputs, strict=True) if name is not None})
    return found


def _used(instructions: Sequence[Instruction]) -> dict[str, None]:
    """The names that ``instructions`` use, in order."""
    used: dict[str, None] = {}
    for each in instructions:
        if isinstance(each, Run):
            used.update(dict.fromkeys(each.inputs))
            if each.state and each.again:
                used[each.state] = None
    return used


def _defined(instructions: Sequence[Instruction]) -> set[str]:
    """The names that ``instructions`` define."""
    runs = [each for each in instructions if isinstance(each, Run)]
    found = {name for each in runs for name in each.outputs if name is not None}
    return found | {each.state for each in runs if each.state and not each.again}


def _live(instructions: Sequence[Instruction], given: set[str]) -> list[Instruction]:
    """``instructions`` without the end of names that are not there: those of the part before."""
    there, found = given | _defined(instructions), list[Instruction]()
    for each in instructions:
        if not isinstance(each, Free):
            found.append(each)
        elif names := tuple([name for name in each.names if name in there]):
            found.append(Free(names))
    return found
