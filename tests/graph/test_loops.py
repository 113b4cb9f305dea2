"""Graphs with loops, and graphs whose sizes are expressions: checked, counted, written and read."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

import msgspec
import pytest

from tensortide.cost import Cost, count, rule
from tensortide.errors import GraphError, GraphFileError
from tensortide.expr import Expr, expr_of, sized, symbol
from tensortide.expr.parse import from_plain, to_plain
from tensortide.graph import OUTSIDE, TENSOR, Call, Graph, Loop, Op, Phase, Role, Storage, Tensor, load, save, validate
from tensortide.graph.file import MAGIC
from tensortide.memory import footprint_bytes
from tensortide.timelines import liveness, timeline

N, T, U = symbol("n"), symbol("t"), symbol("layer/1:0::dim_0")


@rule("test_loops::work", formula="7 per element")
def work(op: object) -> Cost:
    """Some work."""
    return Cost(elementwise_flops=7, read_bytes=3, written_bytes=4)


def looped(trips: int = 5, inner: int = 3) -> Graph:
    """One op outside, one in a loop, one in a loop inside of that; each makes 8 bytes."""
    loops = (Loop("outer", OUTSIDE, trips), Loop("inner", 0, inner), Loop("back", OUTSIDE, trips, gradient_of=0))
    return Graph(
        ops=tuple(Op(0, (), (i,), Phase.FORWARD, loop=loop, label=f"op{i}") for i, loop in enumerate((OUTSIDE, 0, 1))),
        calls=(Call("test_loops.work"),),
        tensors=tuple(Tensor(i, "float32", (2,), (1,)) for i in range(3)),
        storages=tuple(Storage(8, "cpu", Role.TEMPORARY, i, i + 1) for i in range(3)),
        loops=loops,
    )


def symbolic() -> Graph:
    """The same with sizes that are expressions, in every place that can have one."""
    n, t = sized(N // 2 + 1, 5), sized(T * U**2 / 3, 12)
    graph = looped()
    call = Call("test_loops.work", (("shape", (n, 4)),))
    return msgspec.structs.replace(
        graph,
        calls=(call,),
        tensors=tuple(Tensor(i, "float32", (n, 2), (sized(2 * N, 18), 1), sized(N, 9)) for i in range(3)),
        storages=tuple(Storage(n * 8, "cpu", Role.TEMPORARY, i, i + 1) for i in range(3)),
        loops=(msgspec.structs.replace(graph.loops[0], trips=t), *graph.loops[1:]),
    )


def test_trips_are_those_of_all_loops_around() -> None:
    graph = looped()
    validate(graph)
    assert [graph.trips(i) for i in range(3)] == [1, 5, 15]
    assert [view.trips for view in graph] == [1, 5, 15]


@pytest.mark.parametrize(
    "loop",
    [
        Loop("x", 3, 1),
        Loop("x", 1, 1),
        Loop("x", 0, -1),
        Loop("x", 0, 1, 7),
        Loop("x", 0, 1, 1),
        Loop("x", 0, 1, -1, ((0, 9),)),
    ],
)
def test_a_wrong_loop_is_an_error(loop: Loop) -> None:
    graph = looped()
    with pytest.raises(GraphError, match="loop 1"):
        validate(msgspec.structs.replace(graph, loops=(graph.loops[0], loop, graph.loops[2])))


def test_an_op_in_no_loop_of_the_graph_is_an_error() -> None:
    graph = looped()
    with pytest.raises(GraphError, match="loop"):
        validate(msgspec.structs.replace(graph, loops=()))


def test_totals_are_rows_times_trips() -> None:
    """Every total: of the step, by phase, op, module; and the bytes that coverage speaks of."""
    counted = count(looped())
    runs = 1 + 5 + 15
    for total in (
        counted.total,
        counted.by_phase["forward"],
        *counted.by_op.values(),
        counted.by_module["(outside)"].inclusive,
    ):
        assert (total.flops, total.accessed_bytes, total.ops) == (7 * runs, 7 * runs, 3)
    assert counted.range[0].flops == 7 * runs
    assert (counted.coverage.nbytes, counted.coverage.covered_bytes) == (7 * runs, 7 * runs)


def test_totals_of_symbolic_trips_are_expressions() -> None:
    total = count(symbolic()).total
    assert expr_of(total.flops) == 7 * (1 + 4 * T * U**2 / 3)
    assert total.flops == 7 * (1 + 12 + 36)


def test_costs_of_equal_numbers_and_other_expressions_are_not_shared() -> None:
    """4 and n = 4 are the same number; their costs are not the same formula."""
    shapes: list[tuple[int, ...]] = [(4,), (sized(N, 4),)]
    graph = Graph(
        ops=tuple(Op(0, (i,), (i + 2,), Phase.FORWARD) for i in range(2)),
        calls=(Call("aten.neg.default", (("self", TENSOR),), 1),),
        tensors=tuple(Tensor(i, "float32", shapes[i % 2], (1,)) for i in range(4)),
        storages=tuple(Storage(16, "cpu", Role.TEMPORARY, None if i < 2 else i - 2, None) for i in range(4)),
    )
    assert expr_of(count(graph).total.flops) == N + 4


def test_footprint_counts_bodies_every_iteration() -> None:
    assert looped().index.copies == (1, 5, 15)
    assert footprint_bytes(looped()) == 8 * 21


def test_memory_over_time_says_that_it_does_not_know_loops() -> None:
    for ask in (timeline, liveness):
        with pytest.raises(GraphError, match="loops"):
            ask(looped())


@pytest.mark.parametrize("graph", [looped(), symbolic()], ids=["numbers", "expressions"])
def test_graphs_survive_the_file(graph: Graph, tmp_path: Path) -> None:
    save(graph, tmp_path / "g.tide")
    again = load(tmp_path / "g.tide")
    assert again == graph
    assert [expr_of(n) for n in _numbers(again)] == [expr_of(n) for n in _numbers(graph)]


def _numbers(graph: Graph) -> list[int]:
    argument = dict(graph.calls[0].arguments).get("shape", ())
    assert isinstance(argument, tuple)
    sizes = [n for t in graph.tensors for n in (*t.shape, *t.strides, t.offset)]
    return [*sizes, *(s.nbytes for s in graph.storages), *(loop.trips for loop in graph.loops), *argument]  # type: ignore[list-item]


def test_a_file_of_version_1_is_read(tmp_path: Path) -> None:
    """Without loops, expressions, and the last fields of ops."""
    call = ["aten.neg.default", [["self", {"tensor": None}]], 1, [], {"tensor": None}, []]
    tables = [
        {}, [call], [[0, [0], [1], "forward", -1, -1, False]],
        [[0, "float32", [2], [1], 0], [1, "float32", [2], [1], 0]],
        [[8, "cpu", "input", None, None, "x"], [8, "cpu", "temporary", 0, None]], [], [], [], [],
    ]  # fmt: skip
    packed = msgspec.msgpack.encode(tables)
    header = struct.pack(">8sHIQ", MAGIC, 1, zlib.crc32(packed), len(packed))
    (tmp_path / "old.tide").write_bytes(header + zlib.compress(packed))
    graph = load(tmp_path / "old.tide")
    assert (len(graph), graph.loops, graph.ops[0].loop, graph.ops[0].label) == (1, (), OUTSIDE, "")
    assert count(graph).total.flops == 2


def test_an_expression_that_is_none_is_one_clear_error(tmp_path: Path) -> None:
    save(symbolic(), tmp_path / "g.tide")
    data = (tmp_path / "g.tide").read_bytes()
    packed = zlib.decompress(data[22:]).replace(b"\xa5floor", b"\xa5flour")
    header = struct.pack(">8sHIQ", MAGIC, 2, zlib.crc32(packed), len(packed))
    (tmp_path / "g.tide").write_bytes(header + zlib.compress(packed))
    with pytest.raises(GraphFileError, match="flour"):
        load(tmp_path / "g.tide")


@pytest.mark.parametrize("expr", [N, N // 2 + 1, T * U**2 / 3 - 7, 10**30 * N, (N + T) // (U + 1)], ids=str)
def test_expressions_as_plain_data(expr: Expr) -> None:
    plain = msgspec.msgpack.decode(msgspec.msgpack.encode(to_plain(expr)))
    assert from_plain(plain) == expr
