"""Axes are joined, split and cut; views tie them by where they lie in memory; an op has one rule."""

from __future__ import annotations

import pytest

from tensortide.cost import read_rows, registry
from tensortide.errors import TensortideError
from tensortide.graph import Call, Graph, Op, Phase, Role, Storage, Tensor
from tensortide.graph.communication import payload_bytes
from tensortide.graph.model import TENSOR
from tensortide.parallelism.analysis import Analysis, analyzed
from tensortide.parallelism.axes import Axes
from tensortide.parallelism.draft import contiguous
from tensortide.parallelism.layout import tie_view
from tensortide.parallelism.local import LocalSizes
from tensortide.parallelism.rules import rules
from tensortide.parallelism.rules.table import rule
from tensortide.parallelism.sites import Site
from tests.cost.probe import graph_of, tensor


def sizes(axes: Axes, these: list[int]) -> list[int]:
    return [axes.size[axis] for axis in axes.leaves(these)]


def test_an_axis_that_meets_finer_ones_is_split_like_them() -> None:
    axes = Axes()
    columns, fused = axes.new(2304), [axes.new(3), axes.new(12), axes.new(64)]
    axes.tie([columns], fused)
    assert axes.leaves([columns]) == axes.leaves(fused)
    assert sizes(axes, [columns]) == [3, 12, 64]
    assert not axes.cuts


def test_lists_that_do_not_align_are_cut_from_where_they_part() -> None:
    axes = Axes()
    one, other = [axes.new(4), axes.new(3)], [axes.new(3), axes.new(4)]
    axes.tie(one, other)
    assert axes.cuts.keys() == set(axes.leaves([*one, *other]))


def view(shape: tuple[int, ...], strides: tuple[int, ...] = (), offset: int = 0) -> Tensor:
    return Tensor(0, "float32", shape, strides or contiguous(shape), offset)


@pytest.mark.parametrize(
    ("shape", "strides", "offset", "leaves"),
    [
        ((6, 8), (), 0, [[6], [8]]),
        ((48,), (), 0, [[6, 8]]),
        ((8, 6), (1, 8), 0, [[8], [6]]),  # transposed
        ((6, 2, 4), (), 0, [[6], [2], [4]]),
        ((6, 4), (8, 1), 4, [[6], [4]]),  # the second half of each row
        ((6, 5, 8), (8, 0, 1), 0, [[6], [5], [8]]),  # repeated: an axis of its own
        ((8,), (1,), 16, [[8]]),  # one row
    ],
)
def test_views_have_the_axes_of_what_they_view(
    shape: tuple[int, ...], strides: tuple[int, ...], offset: int, leaves: list[list[int]]
) -> None:
    axes = Axes()
    base, of_view = [axes.new(6), axes.new(8)], [axes.new(size) for size in shape]
    tie_view(axes, view((6, 8)), base, view(shape, strides, offset), of_view)
    assert [sizes(axes, [axis]) for axis in of_view] == leaves
    shared = set(axes.leaves(base)) & set(axes.leaves(of_view))
    assert not shared & axes.cuts.keys()


@pytest.mark.parametrize(("size", "offset"), [(5, 0), (4, 2)])
def test_an_uneven_part_of_a_dimension_is_cut(size: int, offset: int) -> None:
    axes = Axes()
    base, of_view = [axes.new(6), axes.new(8)], [axes.new(6), axes.new(size)]
    tie_view(axes, view((6, 8)), base, view((6, size), (8, 1), offset), of_view)
    assert axes.find(base[0]) == axes.find(of_view[0])
    assert base[0] not in axes.cuts
    assert axes.leaves([of_view[1]])[0] in axes.cuts


def test_an_uneven_share_of_an_axis_is_rounded_up() -> None:
    axes = Axes()
    rows, columns = axes.new(7), axes.new(4)
    graph = Graph((), (), (view((7, 4)),), (Storage(7 * 4 * 4, "cpu", Role.INPUT, None, None),))
    local = LocalSizes(Analysis(graph, axes, [[rows, columns]], {}), {rows}, 2)
    assert local.graph().tensors[0].shape == (4, 4)
    assert int(local.graph().storages[0].nbytes) == 4 * 4 * 4


def test_an_op_has_one_rule() -> None:
    assert rules()["stack"] is not rules()["cat"]

    def another(site: Site) -> None:
        del site

    with pytest.raises(TensortideError, match="cat has two sharding rules"):
        rule("cat")(another)


def test_a_users_row_of_a_product_says_its_axes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_table", {name: registry.find(name) for name in registry.names()})
    read_rows({"mylib::mix": {"family": "contraction", "letters": "gmk,gkn", "operands": "x weight"}})
    tensors = [tensor(*shape, storage=i) for i, shape in enumerate(((4, 6, 8), (4, 8, 10), (10,), (4, 6, 10)))]
    arguments = tuple((name, TENSOR) for name in ("x", "weight", "bias"))
    graph = graph_of((Call("mylib.mix.default", arguments, 3), tensors[:3], tensors[3:]))
    found = analyzed(graph)
    (x, weight, bias), (out,) = (op_tensors for op_tensors in (graph.ops[0].inputs, graph.ops[0].outputs))
    leaves = [[found.axes.leaves([axis]) for axis in found.dims[ref]] for ref in (x, weight, bias, out)]
    assert leaves[3] == [leaves[0][0], leaves[0][1], leaves[1][2]]
    assert (leaves[1][0], leaves[1][1], leaves[2][0]) == (leaves[0][0], leaves[0][2], leaves[1][2])


def test_the_payload_of_a_list_is_that_of_all_its_tensors() -> None:
    tensors = tuple(Tensor(i, "float32", (size,), (1,)) for i, size in enumerate((8, 24)))
    storages = tuple(Storage(t.numel * 4, "cpu", Role.GRADIENT, None, None) for t in tensors)
    call = Call("c10d.allreduce_coalesced_.default", (("tensors", (TENSOR, TENSOR)),), 1, (0, 1), None)
    graph = Graph((Op(0, (0, 1), (), Phase.BACKWARD),), (call,), tensors, storages)
    assert payload_bytes(graph[0]) == 32 * 4


@pytest.mark.parametrize(
    ("op", "inputs", "output", "free"),
    [
        ("aten.add.Tensor", [(4, 8), (8,)], (4, 8), "01 0 01"),
        ("quantized.add.default", [(4, 8), (4, 8)], (4, 8), "01 01 01"),
        ("jax.add", [(4, 8), (4, 8)], (4, 8), "01 01 01"),
        ("aten.max_pool2d.default", [(4, 3, 8, 8)], (4, 3, 4, 4), "01 01"),
        ("aten.max_pool2d.default", [(3, 8, 8)], (3, 8, 8), "0 0"),  # one image: its height is no channel
        ("aten.avg_pool1d.default", [(3, 8)], (3, 4), "0 0"),
        ("aten.fractional_max_pool2d.default", [(4, 3, 8, 8), (4, 3, 2)], (4, 3, 4, 4), "01 01 01"),
        ("prims._low_memory_max_pool_with_offsets.default", [(4, 3, 8, 8)], (4, 3, 4, 4), "01 01"),
        ("onnx.RoiAlign", [(4, 3, 8, 8), (4, 4), (4,)], (4, 3, 2, 2), "- - - -"),
        ("jax.reduce_window", [(8,)], (2,), "- -"),
        ("jax.reduce_window_max", [(4, 8, 8, 6)], (4, 8, 8, 6), "- -"),
        ("tf.MaxPool", [(4, 8, 8, 6)], (4, 8, 8, 6), "- -"),
        ("tf.BiasAdd", [(4, 8, 8, 8), (8,)], (4, 8, 8, 8), "- - -"),  # by a layout that its attributes name
        ("onnx.QuantizeLinear", [(4, 8, 8, 8), (8,)], (4, 8, 8, 8), "- - -"),
        ("onnx.DynamicQuantizeLinear", [(4, 8)], (4, 8), "- -"),
        ("com.microsoft::RotaryEmbedding", [(4, 8, 16)], (4, 8, 16), "- -"),
        ("keras.ops_Cumsum", [(4, 8)], (4, 8), "- -"),
        ("quantized_decomposed.quantize_per_channel.default", [(4, 8), (8,)], (4, 8), "- - -"),
    ],
)
def test_an_op_of_another_vocabulary_is_cut_whatever_its_costs_are_like(
    op: str, inputs: list[tuple[int, ...]], output: tuple[int, ...], free: str
) -> None:
    call = Call(op, tuple((f"x{i}", TENSOR) for i in range(len(inputs))), len(inputs))
    analysis = analyzed(graph_of((call, [tensor(*shape) for shape in inputs], [tensor(*output)])))
    found = [
        "".join(str(i) for i, axis in enumerate(dims) if not any(analysis.reasons(axis))) for dims in analysis.dims
    ]
    assert [dims or "-" for dims in found] == free.split()
