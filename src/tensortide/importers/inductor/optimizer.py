"""Classification of the parameters of the optimizer's graph: the model's weights and their gradients."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from tensortide.importers.inductor.assembly import Assembly
from tensortide.importers.inductor.phase import Part, Reading
from tensortide.importers.inductor.syntax import Program, name_of_call
from tensortide.importers.inductor.types import TensorType

__all__ = ["matched"]


def matched(
    program: Program, forward: Reading, backward: Reading, made: Assembly
) -> tuple[dict[str, int | Part | None], str]:
    """The tensors that parameters of the optimizer's graph stand for, and what to say if that is not certain.

    The weights with a gradient, in order, are a run of consecutive parameters of the same types that are all written;
    their gradients are a run that is not. Unless there is exactly one such run, none is taken.
    """
    pairs = [
        (weight, gradient)
        for weight, gradient in zip(forward.arguments, backward.results, strict=False)
        if weight is not None and gradient is not None
    ]
    types = [made.tensors[weight].type[:2] for weight, _ in pairs]
    parameters = [parameter for parameter in program.parameters if isinstance(parameter.type, TensorType)]
    names = [parameter.name for parameter in parameters]
    given = [parameter.type[:2] for parameter in parameters if isinstance(parameter.type, TensorType)]
    written = _written(program)
    found: dict[str, int | Part | None] = {}
    unclear = []
    for what, side, wanted in (("weights", 0, True), ("gradients", 1, False)):
        runs = [
            start
            for start in range(len(given) - len(types) + 1)
            if given[start : start + len(types)] == types
            and all((name in written) is wanted for name in names[start : start + len(types)])
        ]
        if len(runs) == 1 and types:
            found.update(zip(names[runs[0] :], _side(pairs, side), strict=False))
        else:
            unclear.append(f"{what} ({len(runs)} ways)")
    if not unclear:
        return found, ""
    return found, (
        f"which arguments of the optimizer's graph are {' and '.join(unclear)} is not certain: "
        "they are tensors of their own"
    )


def _side(pairs: Sequence[tuple[int, int]], side: int) -> list[int]:
    return [pair[side] for pair in pairs]


def _written(program: Program) -> set[str]:
    """Names that ``aten.copy_`` writes."""
    return {
        node.value.args[0].id
        for node in program.nodes
        if isinstance(node.value, ast.Call)
        and name_of_call(node.value) == "torch.ops.aten.copy_.default"
        and node.value.args
        and isinstance(node.value.args[0], ast.Name)
    }
