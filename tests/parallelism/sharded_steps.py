"""Executes a step with shards op by op beside the whole one: an oracle of what shards compute."""

from __future__ import annotations

import msgspec
import torch

from tensortide.graph import Graph, Role
from tensortide.graph.model import Const, Value
from tensortide.parallelism.shards import Sharded
from tests.parallelism.lockstep import Rank, drawn, dtype_of

Contents = dict[tuple[str, Role], torch.Tensor]
"""Values of storages, one dimension each, by name and role."""
LEFT = (Role.PARAMETER, Role.GRADIENT, Role.OPTIMIZER_STATE, Role.BUFFER, Role.OUTPUT)


def in_double(graph: Graph) -> Graph:
    """The same step with numbers of twice the precision, so that a difference in the last bits is a small one."""
    replace = msgspec.structs.replace
    wide = {tensor.storage for tensor in graph.tensors if tensor.dtype == "float32"}
    return replace(
        graph,
        tensors=tuple(replace(t, dtype="float64") if t.dtype == "float32" else t for t in graph.tensors),
        storages=tuple(
            replace(held, nbytes=2 * held.nbytes) if number in wide else held
            for number, held in enumerate(graph.storages)
        ),
        calls=tuple(
            replace(call, arguments=tuple((name, _widened(value)) for name, value in call.arguments))
            for call in graph.calls
        ),
        composites=None,
    )


def _widened(value: Value) -> Value:
    return Const("dtype", "float64") if value == Const("dtype", "float32") else value


def given_values(graph: Graph, seed: int = 0) -> Contents:
    """Random contents of what exists before the step."""
    found: Contents = {}
    for storage, (tensor, values) in drawn(graph, seed).items():
        view, held = graph.tensors[tensor], graph.storages[storage]
        base = torch.zeros(held.nbytes // view.itemsize, dtype=dtype_of(view))
        legal = values if values.is_floating_point() else values % 2  # a class, a token
        base.as_strided(view.shape, view.strides, view.offset).copy_(legal)
        found[held.name, held.role] = base
    return found


def executed(graph: Graph, given: Contents) -> Contents:
    """What the step leaves: parameters, gradients, states, buffers and what it returns."""
    rank = Rank(graph, {})
    for storage, held in enumerate(graph.storages):
        if held.birth is None and (held.name, held.role) in given:
            rank.bases[storage] = given[held.name, held.role].clone()
    kept: Contents = {}
    for index in range(len(graph)):
        rank.run(index)
    for storage, held in enumerate(graph.storages):
        if held.role in LEFT and storage in rank.bases:
            name = held.name or f"{held.role.value} {sum(role is held.role for _, role in kept)}"
            kept[name, held.role] = rank.bases[storage]
    return kept


def parts_given(step: Sharded, whole: Contents) -> Contents:
    """``whole`` contents, of what is in shards the part of each."""
    found = dict(whole)
    for (name, role), piece in step.pieces.items():
        if (piece.name, role) in whole:
            values = whole[piece.name, role]
            base = values.view(getattr(torch, piece.dtype)).reshape(piece.outer, piece.size, piece.inner)
            found[name, role] = base[:, piece.start : piece.end].reshape(-1).clone().view(values.dtype)
    return found


def put_together(step: Sharded, parts: Contents) -> Contents:
    """Contents with the parts of what is in shards joined."""
    names = {name: piece.name for (name, _), piece in step.pieces.items()}
    found = {key: values for key, values in parts.items() if key[0] not in names}
    for (name, role), values in parts.items():
        piece = step.pieces.get((name, role))
        if piece is not None:
            shape, dtype = (piece.outer, piece.size, piece.inner), getattr(torch, piece.dtype)
            empty = torch.zeros(piece.outer * piece.size * piece.inner, dtype=dtype).view(values.dtype)
            joined = found.setdefault((piece.name, role), empty).view(dtype).view(shape)
            joined[:, piece.start : piece.end] = values.view(dtype).reshape(piece.outer, -1, piece.inner)
    return found


def assert_computes_the_same(graph: Graph, step: Sharded, seed: int = 0, tolerance: float = 1e-9) -> None:
    """What the step with shards leaves differs from what ``graph`` leaves by no more than ``tolerance`` of the largest
    number of each tensor; with a tolerance of 0 no bit does."""
    given = given_values(graph, seed)
    expected = executed(graph, given)
    found = put_together(step, executed(step.graph, parts_given(step, given)))
    assert found.keys() >= expected.keys(), found.keys() ^ expected.keys()
    assert expected
    for key, values in expected.items():
        other = found[key]
        assert other.shape == values.shape, key
        if not values.is_floating_point() or not tolerance:
            assert torch.equal(other, values), (key, (other - values).abs().max())
            continue
        scale = float(values.abs().max()) if values.numel() else 0.0
        assert torch.allclose(other, values, rtol=0, atol=tolerance * max(scale, 1e-3), equal_nan=True), (
            key,
            float((other - values).abs().max()),
            scale,
        )
