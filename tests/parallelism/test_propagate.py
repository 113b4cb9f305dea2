"""Specs that a seed gives to the tensors of an op: those of PyTorch's DTensor."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import DTensor, Partial, Placement, Replicate, Shard
from torch.distributed.tensor._ops._math_ops import _NormPartial
from torch.distributed.tensor.debug import CommDebugMode

from tensortide import capture
from tensortide.parallelism.analysis import analyzed
from tensortide.parallelism.propagate import Division

RANKS = 2


class Spec(NamedTuple):
    """A tensor along one axis of the mesh: sharded along ``dims``, replicated if there are none; ``partial`` says how
    the ranks combine it."""

    dims: tuple[int, ...] = ()
    partial: str = ""


Step = Callable[..., Any]
OPS: dict[str, tuple[str, Step, tuple[tuple[int, ...], ...]]] = {
    "mm": ("mm", torch.mm, ((4, 6), (6, 8))),
    "bmm": ("bmm", torch.bmm, ((2, 4, 6), (2, 6, 8))),
    "addmm": ("addmm", torch.addmm, ((4, 8), (4, 6), (6, 8))),
    "sum of two": ("add", torch.add, ((4, 6), (4, 6))),
    "a vector to each row": ("add", torch.add, ((4, 6), (6,))),
    "element by element": ("gelu", F.gelu, ((4, 6),)),
    "transposed": ("t", torch.ops.aten.t, ((4, 6),)),
    "heads": ("view", lambda x: torch.ops.aten.view(x, (2, 4, 2, 4)), ((2, 4, 8),)),
    "permuted": ("permute", lambda x: x.permute(2, 0, 1), ((2, 4, 6),)),
    "sum": ("sum", lambda x: x.sum(1), ((4, 6),)),
    "mean": ("mean", lambda x: x.mean((0, 2)), ((4, 6, 8),)),
    "largest": ("amax", lambda x: x.amax(1, keepdim=True), ((4, 6),)),
    "softmax": ("_softmax", lambda x: x.softmax(-1), ((4, 6, 8),)),
    "layer norm": ("native_layer_norm", lambda x, w, b: F.layer_norm(x, (6,), w, b), ((4, 8, 6), (6,), (6,))),
    "number times": ("mul", lambda x: x * 3.0, ((4, 6),)),
    "gated": ("mul", torch.mul, ((4, 6), (4, 6))),
    "row times column": ("mul", torch.mul, ((4, 1), (1, 6))),
    "divided by its rows": ("div", torch.div, ((4, 6), (4, 1))),
    "chosen": ("where", lambda c, x, y: torch.where(c > 0, x, y), ((4, 6), (4, 6), (4, 6))),
    "silu": ("silu", F.silu, ((2, 4, 6),)),
    "tanh": ("tanh", torch.tanh, ((4, 6),)),
    "square root": ("rsqrt", lambda x: x.abs().rsqrt(), ((4, 6),)),
    "clamped": ("clamp", lambda x: x.clamp(-1, 1), ((4, 6),)),
    "power": ("pow", lambda x: x.pow(2), ((4, 6),)),
    "exponential": ("exp", torch.exp, ((4, 6),)),
    "exchanged": ("transpose", lambda x: x.transpose(0, 1), ((4, 6, 8),)),
    "one more": ("unsqueeze", lambda x: x.unsqueeze(1), ((4, 6),)),
    "one less": ("squeeze", lambda x: x.squeeze(1), ((4, 1, 6),)),
    "repeated": ("expand", lambda x: x.expand(4, 6), ((4, 1),)),
    "rows of it": ("slice", lambda x: x[:, :2], ((4, 6),)),
    "split": ("split", lambda x: torch.split(x, 3, 1)[0], ((4, 6),)),
    "stacked": ("stack", lambda x, y: torch.stack([x, y]), ((4, 6), (4, 6))),
    "sum of all": ("sum", torch.sum, ((4, 6),)),
    "least": ("amin", lambda x: x.amin(0), ((4, 6),)),
    "cumulative": ("cumsum", lambda x: x.cumsum(1), ((4, 6),)),
    "vector product": ("mv", torch.mv, ((4, 6), (6,))),
    "norm of vectors": ("linalg_vector_norm", lambda x: torch.linalg.vector_norm(x, dim=1), ((4, 6),)),
    "batches added to": ("baddbmm", torch.baddbmm, ((2, 4, 8), (2, 4, 6), (2, 6, 8))),
    "joined": ("cat", lambda x, y: torch.cat([x, y], 1), ((4, 6), (4, 8))),
}


@pytest.fixture(scope="module")
def mesh() -> Iterator[DeviceMesh]:
    """A mesh of ``RANKS``, of which this process is the first."""
    from torch.testing._internal.distributed.fake_pg import FakeStore

    dist.init_process_group("fake", rank=0, world_size=RANKS, store=FakeStore())
    yield init_device_mesh("cpu", (RANKS,))
    dist.destroy_process_group()


def placement(spec: Spec) -> Placement:
    if spec.partial == "norm":
        return _NormPartial(2)
    if spec.partial:
        return Partial(spec.partial)
    return Shard(spec.dims[0]) if spec.dims else Replicate()


@pytest.mark.parametrize("name", OPS)
def test_specs_of_an_op_are_those_of_dtensor(name: str, mesh: DeviceMesh) -> None:
    op_name, function, shapes = OPS[name]
    given = [torch.randn(shape) for shape in shapes]
    graph = capture(lambda: lambda: function(*given), real=True)
    index = next(i for i, op in enumerate(graph) if op.name.startswith(f"aten.{op_name}."))
    analysis = analyzed(graph)
    inputs = graph.ops[index].inputs
    assert [graph.tensors[t].shape for t in inputs] == list(shapes)
    divided = set()
    for tensor in inputs:
        for dim in analysis.dims[tensor]:
            leaves = analysis.axes.leaves([dim])
            if not leaves:
                continue  # a dimension of one element
            axis = leaves[0]  # the outermost one: shards of DTensor are consecutive
            division = Division(analysis, frozenset({axis}), RANKS, "mesh")
            before = [Spec(division.dims(t)) for t in inputs]
            made_partial, outputs = division.partials(index), graph.ops[index].outputs
            after = [Spec(division.dims(t), made_partial.get(t, "")) for t in outputs]
            sharded = [
                DTensor.from_local(_local(x, spec), mesh, [placement(spec)], run_check=False)
                for x, spec in zip(given, before, strict=True)
            ]
            with CommDebugMode() as moved:
                made = function(*sharded)
            if any(analysis.reasons(axis)):
                changed = made.placements != (placement(after[0]),)
                assert moved.get_total_counts() or changed, "DTensor divides what has no rule here"
                continue
            assert made.placements == (placement(after[0]),)
            assert not moved.get_total_counts()
            divided.add(axis)
    assert divided


def _local(whole: torch.Tensor, spec: Spec) -> torch.Tensor:
    if not spec.dims:
        return whole
    part: torch.Tensor = whole.chunk(RANKS, spec.dims[0])[0]
    return part
