"""Programs built by hand, without JAX: what is dead, which phase a step is in, how often loops run, what is local."""

from __future__ import annotations

import operator
from typing import Any

import pytest

from tensortide.cost import count
from tensortide.graph.model import Phase, Role
from tensortide.importers.jax import trips
from tensortide.importers.jax.convert import converted, roles_of
from tensortide.importers.jax.dead import pruned, surplus
from tensortide.importers.jax.phases import classify
from tensortide.importers.jax.program import (
    Arm,
    Carry,
    Cell,
    Choice,
    Leaf,
    Loop,
    Program,
    Slice,
    SourceInfo,
    Step,
    kind_of,
    module_of,
    steps,
)
from tensortide.importers.jax.trips import DATA, ENDLESS, LONG, Trips, trip_count
from tensortide.importers.jax.views import layout_of

FORWARD, BACKWARD = SourceInfo("jvp(Net)"), SourceInfo("transpose(jvp(Net))")
MATRICES = (((1,), (0,)), ((), ()))


def cell(*shape: int, dtype: str = "float32", literal: Any = None, name: str = "") -> Cell:
    return Cell(shape, dtype, literal, name)


def step(name: str, *inputs: Cell, out: Cell | None = None, place: SourceInfo = FORWARD, **arguments: Any) -> Step:
    return Step(name, list(inputs), [out or cell(*inputs[0].shape)], arguments, place)


def product(a: Cell, b: Cell, place: SourceInfo = FORWARD) -> Step:
    return step("dot_general", a, b, out=cell(a.shape[0], b.shape[1]), place=place, dimension_numbers=MATRICES)


def program(nodes: list[Any], inputs: list[Cell], outputs: list[Cell], **more: Any) -> Program:
    for number, each in enumerate(inputs):
        each.name = each.name or f"x{number}"
    return Program("step", nodes, [Leaf((each.name,), each) for each in inputs], [], outputs, **more)


def test_what_nobody_reads_is_dropped_and_said() -> None:
    x, w = cell(4, 4), cell(4, 4)
    used, dead = product(x, w), product(w, x)
    after = step("tanh", dead.outputs[0])
    graph = converted(program([used, dead, after], [x, w], used.outputs)).graph
    assert [graph.calls[op.call].op for op in graph.ops] == ["jax.dot_general"]
    assert any("2 ops with 64 MACs" in text and "dot_general x1" in text for text in graph.meta.assumptions)
    kept = converted(program([used, dead, after], [x, w], used.outputs), keep_dead=True).graph
    assert len(kept) == 3
    assert count(kept).total.cost.macs == 128


def test_an_effect_keeps_a_step() -> None:
    x = cell(4)
    said = Step("debug_callback", [x], [], kept=True)
    nodes, live = pruned([said], [])
    assert nodes == [said]
    assert x in live


def loop(trips: int = 3) -> tuple[Loop, Cell, Cell, Cell]:
    """A loop that carries h @ w and counts i; only h is read after it."""
    h, w, i = cell(2, 4), cell(4, 4), cell(dtype="int32", literal=0)
    start, count_ = cell(2, 4), cell(dtype="int32")
    turn = product(start, w)
    more = Step("add", [count_, cell(dtype="int32", literal=1)], [cell(dtype="int32")], {}, FORWARD)
    carries = [
        Carry(h, start, turn.outputs[0], cell(2, 4)),
        Carry(i, count_, more.outputs[0], cell(dtype="int32")),
    ]
    return Loop("scan", trips, [turn, more], carries), h, w, carries[0].final


def test_loops_carry_only_what_is_read() -> None:
    made, h, w, final = loop()
    (kept,), live = pruned([made], [final])
    assert isinstance(kept, Loop)
    assert [carry.final for carry in kept.carries] == [final]
    assert [node.name for node in kept.body if isinstance(node, Step)] == ["dot_general"]
    assert {h, w} <= live


def test_a_loop_body_counts_as_often_as_it_runs() -> None:
    made, h, w, final = loop(5)
    graph = converted(program([made], [h, w], [final])).graph
    assert count(graph).total.cost.macs == 5 * 2 * 4 * 4
    assert [each.trips for each in graph.loops] == [5]


def test_the_last_iteration_may_work_for_nobody() -> None:
    """Of a carry that nobody reads after the loop the last iteration computes a value in vain."""
    made, h, w, _ = loop(5)
    turn = made.body[0]
    assert isinstance(turn, Step)
    rows = Slice(cell(5, 2, 4), step("tanh", made.carries[0].start).outputs[0])
    tanh = Step("tanh", [made.carries[0].start], [rows.part], {}, FORWARD)
    made.body.append(tanh)
    made.written.append(rows)
    nodes, _ = pruned([made], [rows.whole])
    found = surplus(nodes, [rows.whole])
    assert [(each.name, times) for each, times in found] == [("dot_general", 1)]
    graph = converted(program([made], [h, w], [rows.whole])).graph
    assert any(text.startswith("surplus: 32 MACs") for text in graph.meta.assumptions)


def test_branches_exclude_each_other() -> None:
    x, w, which = cell(4, 4), cell(4, 4), cell(dtype="int32")
    once = product(x, w)
    first = product(x, w)
    second = product(first.outputs[0], w)
    choice = Choice(which, [Arm([once], once.outputs), Arm([first, second], second.outputs)], [cell(4, 4)])
    total = count(converted(program([choice], [x, w, which], choice.outputs)).graph)
    assert [each.cost.macs for each in total.range] == [64, 128]


def train() -> tuple[Program, dict[str, Step]]:
    """A layer, its gradient, momentum: p -= (m = m + g); a count that only the optimizer reads."""
    p, m, x, n = cell(4, 4, name="p"), cell(4, 4, name="m"), cell(2, 4, name="x"), cell(dtype="int32", name="n")
    turned = step("transpose", x, out=cell(4, 2), place=BACKWARD, permutation=(1, 0))
    named = {
        "forward": product(x, p),
        "scale": step("mul", cell(2, 4), cell(literal=2.0), place=BACKWARD),
        "momentum": Step("add", [m, cell(4, 4)], [cell(4, 4)], {}, SourceInfo()),
        "count": Step("add", [n, cell(dtype="int32", literal=1)], [cell(dtype="int32")], {}, SourceInfo()),
        "update": Step("sub", [p, cell(4, 4)], [cell(4, 4)], {}, SourceInfo()),
    }
    named["scale"].inputs[0] = named["forward"].outputs[0]
    named["gradient"] = product(turned.outputs[0], named["scale"].outputs[0], BACKWARD)
    named["momentum"].inputs[1] = named["gradient"].outputs[0]
    named["update"].inputs[1] = named["momentum"].outputs[0]
    order = ["forward", "scale"]
    nodes: list[Any] = [*(named[key] for key in order), turned, named["gradient"]]
    nodes += [named["count"], named["momentum"], named["update"]]
    outs = [named[key].outputs[0] for key in ("update", "momentum", "count")]
    made = program(nodes, [p, m, x, n], outs)
    made.updates = list(zip([made.inputs[0], made.inputs[1], made.inputs[3]], outs, strict=True))
    return made, named


def test_phases_and_roles_follow_from_who_reads_what() -> None:
    made, named = train()
    classify(made)
    phases = {key: each.phase for key, each in named.items()}
    assert phases == {
        "forward": Phase.FORWARD,
        **dict.fromkeys(("scale", "gradient"), Phase.BACKWARD),
        **dict.fromkeys(("momentum", "count", "update"), Phase.OPTIMIZER),
    }
    roles = {each.name: role for each, role in roles_of(made).items()}
    assert roles == {
        "p": (Role.PARAMETER, True),
        **dict.fromkeys(("m", "n"), (Role.OPTIMIZER_STATE, False)),
        "x": (Role.INPUT, False),
    }


def test_what_the_backward_pass_repeats_is_recomputed() -> None:
    x, w = cell(2, 4), cell(4, 4)
    first, again = product(x, w), product(x, w, BACKWARD)
    other = product(again.outputs[0], w, BACKWARD)
    made = program([first, again, other], [x, w], [first.outputs[0], other.outputs[0]])
    classify(made)
    assert [each.recompute for each, _ in steps(made.nodes)] == [False, True, False]


def test_a_checkpoint_names_what_it_rebuilds() -> None:
    x, w = cell(2, 4), cell(4, 4)
    rebuilt = product(x, w, SourceInfo("transpose(jvp(Net))/rematted_computation"))
    made = program([rebuilt], [x, w], rebuilt.outputs)
    classify(made)
    assert rebuilt.recompute
    assert rebuilt.phase is Phase.BACKWARD


def test_gradients_of_convolutions_are_told_by_what_they_read() -> None:
    x, w = cell(2, 3, 8), cell(5, 3, 3)
    y = step("conv_general_dilated", x, w, out=cell(2, 5, 6))
    back = step("mul", y.outputs[0], cell(literal=2.0), place=BACKWARD)
    turned = step("rev", w, place=BACKWARD, dimensions=(2,))
    of_input = step("conv_general_dilated", back.outputs[0], turned.outputs[0], out=cell(2, 3, 8), place=BACKWARD)
    of_weight = step("conv_general_dilated", x, back.outputs[0], out=cell(5, 3, 3), place=BACKWARD)
    nodes: list[Any] = [y, back, turned, of_input, of_weight]
    classify(program(nodes, [x, w], [of_input.outputs[0], of_weight.outputs[0]]))
    assert [each.arguments.get("gradient_of") for each in (y, of_input, of_weight)] == [None, "input", "weight"]


@pytest.mark.parametrize(("first", "last", "by"), [(0, 8, 1), (2, 9, 1), (0, 9, 2), (5, 5, 1), (9, 3, 1)])
def test_trip_counts_are_read_off_the_program(first: int, last: int, by: int) -> None:
    start, x = cell(dtype="int32"), cell(4)
    goes_on = Step("lt", [start, cell(dtype="int32", literal=last)], [cell(dtype="bool")])
    more = Step("add", [start, cell(dtype="int32", literal=by)], [cell(dtype="int32")])
    halved = Step("mul", [x, cell(literal=0.5)], [cell(4)])
    carries = [
        Carry(cell(dtype="int32", literal=first), start, more.outputs[0], cell(dtype="int32")),
        Carry(cell(4), x, halved.outputs[0], cell(4)),
    ]
    found = trip_count([goes_on], goes_on.outputs[0], [more, halved], carries, {})
    assert found == Trips(len(range(first, last, by)))


@pytest.mark.parametrize(
    ("dtype", "name", "by", "last", "want"),
    [
        ("float32", "add", 0.10000000149011612, 1.0, 10),  # 11 in double precision
        ("int8", "add", 50, 120, 23),  # 0, 50, 100, -106, ...
        ("uint8", "sub", 1, 255, 1),  # 0, 255
    ],
)
def test_loops_count_as_their_dtype_does(dtype: str, name: str, by: float, last: float, want: int) -> None:
    start = cell(dtype=dtype)
    goes_on = Step("lt", [start, cell(dtype=dtype, literal=last)], [cell(dtype="bool")])
    more = Step(name, [start, cell(dtype=dtype, literal=by)], [cell(dtype=dtype)])
    carries = [Carry(cell(dtype=dtype, literal=0), start, more.outputs[0], cell(dtype=dtype))]
    assert trip_count([goes_on], goes_on.outputs[0], [more], carries, {}) == Trips(want)


def test_a_condition_on_data_leaves_its_other_half_as_a_bound() -> None:
    start, norm = cell(dtype="int32"), cell()
    below = Step("lt", [start, cell(dtype="int32", literal=50)], [cell(dtype="bool")])
    far = Step("gt", [norm, cell(literal=1e-4)], [cell(dtype="bool")])
    both = Step("and", [far.outputs[0], below.outputs[0]], [cell(dtype="bool")])
    more = Step("add", [start, cell(dtype="int32", literal=1)], [cell(dtype="int32")])
    carries = [
        Carry(cell(dtype="int32", literal=0), start, more.outputs[0], cell(dtype="int32")),
        Carry(cell(), norm, cell(), cell()),
    ]
    assert trip_count([below, far, both], both.outputs[0], [more], carries, {}) == Trips(None, 50, DATA)


def test_an_endless_loop_ends_the_search() -> None:
    start = cell(dtype="int32")
    goes_on = Step("lt", [start, cell(dtype="int32", literal=8)], [cell(dtype="bool")])
    same = Step("mul", [start, cell(dtype="int32", literal=0)], [cell(dtype="int32")])
    carries = [Carry(cell(dtype="int32", literal=0), start, same.outputs[0], cell(dtype="int32"))]
    assert trip_count([goes_on], goes_on.outputs[0], [same], carries, {}) == Trips(None, 0, ENDLESS)


@pytest.mark.parametrize(
    ("name", "by", "last", "want"),
    [
        ("lt", 1, (1 << 31) - 1, (1 << 31) - 1),
        ("lt", 3, 10**9, 333_333_334),
        ("le", 1, 10**9, 10**9 + 1),
        ("gt", -1, -(10**9), 10**9),
        ("ge", -1, -(10**9), 10**9 + 1),
        ("ge", 1, 0, None),  # it ends where the counter wraps around
        ("le", 1, (1 << 31) - 1, None),  # as does this, never
        ("ne", 1, 10**9, 10**9),
    ],
)
@pytest.mark.parametrize("mirrored", [False, True])
def test_long_loops_of_a_counter_are_counted_and_not_followed(
    name: str, by: int, last: int, want: int | None, mirrored: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trips, "LONGEST", 100)
    start, bound = cell(dtype="int32"), cell(dtype="int32", literal=last)
    compared = {"lt": "gt", "gt": "lt", "le": "ge", "ge": "le"}.get(name, name) if mirrored else name
    goes_on = Step(compared, [bound, start] if mirrored else [start, bound], [cell(dtype="bool")])
    more = Step("add", [start, cell(dtype="int32", literal=by)], [cell(dtype="int32")])
    carries = [Carry(cell(dtype="int32", literal=0), start, more.outputs[0], cell(dtype="int32"))]
    found = trip_count([goes_on], goes_on.outputs[0], [more], carries, {})
    assert found == Trips(want, 0, "" if want is not None else LONG)


def test_loops_without_a_counter_are_followed_to_the_longest(monkeypatch: pytest.MonkeyPatch) -> None:
    assert f"over {trips.LONGEST:,}" in LONG
    monkeypatch.setattr(trips, "LONGEST", 100)

    def ends_after(turns: int) -> Trips:
        start = cell(dtype="int32")
        scaled = Step("mul", [start, cell(dtype="int32", literal=1)], [cell(dtype="int32")])  # which counts nothing
        goes_on = Step("ne", [scaled.outputs[0], cell(dtype="int32", literal=turns)], [cell(dtype="bool")])
        more = Step("add", [start, cell(dtype="int32", literal=1)], [cell(dtype="int32")])
        carries = [Carry(cell(dtype="int32", literal=0), start, more.outputs[0], cell(dtype="int32"))]
        return trip_count([scaled, goes_on], goes_on.outputs[0], [more], carries, {})

    assert ends_after(trips.LONGEST - 1) == Trips(trips.LONGEST - 1)
    assert ends_after(trips.LONGEST) == Trips(None, 0, LONG)


def test_a_condition_that_stays_true_is_no_data() -> None:
    goes_on = Step("not", [cell(dtype="bool", literal=False)], [cell(dtype="bool")])
    assert trip_count([goes_on], goes_on.outputs[0], [], [], {}) == Trips(None, 0, ENDLESS)


def test_devices_have_their_part_of_what_only_they_read() -> None:
    x, w = cell(8, 4, name="x"), cell(4, 4, name="w")
    part = step("shard", x, out=cell(2, 4))
    made = product(part.outputs[0], w)
    whole = step("unshard", made.outputs[0], out=cell(8, 4))
    graph = converted(program([part, made, whole], [x, w], whole.outputs, devices=4)).graph
    assert [graph.calls[op.call].op for op in graph.ops] == ["jax.dot_general"]
    assert graph.tensors[0].shape == (2, 4)
    assert count(graph).total.cost.macs == 2 * 4 * 4
    assert any("one device of 4" in text for text in graph.meta.assumptions)


def test_what_others_read_too_stays_whole() -> None:
    x, w = cell(8, 4), cell(4, 4)
    part = step("shard", x, out=cell(2, 4))
    made, also = product(part.outputs[0], w), step("tanh", x)
    graph = converted(program([part, made, also], [x, w], [made.outputs[0], also.outputs[0]])).graph
    assert graph.tensors[0].shape == (8, 4)


@pytest.mark.parametrize(
    ("stack", "path"),
    [
        ("transpose(jvp(MLP))/Dense_0", "MLP.Dense_0"),
        ("jvp(jvp())", ""),
        ("vmap(transpose(jvp(Net)))/rematted_computation/Block_1/Dense", "Net.Block_1.Dense"),
        ("jvp(Net)/bqhd,bkhd->bhqk", "Net"),
    ],
)
def test_modules_are_the_names_of_the_stack(stack: str, path: str) -> None:
    assert module_of(SourceInfo(stack)) == path


def test_the_class_of_a_module_is_its_name_without_a_number() -> None:
    assert kind_of("MLP.Dense_0") == "Dense"


def _places(shape: tuple[int, ...], strides: tuple[int, ...], offset: int) -> list[int]:
    """Addresses of all elements in order."""
    found = [offset]
    for size, stride in zip(shape, strides, strict=True):
        found = [place + i * stride for place in found for i in range(size)]
    return found


@pytest.mark.parametrize(
    ("name", "shape", "results", "arguments", "want"),
    [
        ("reshape", (2, 3), [(3, 2)], {}, [list(range(6))]),
        ("transpose", (2, 3), [(3, 2)], {"permutation": (1, 0)}, [[0, 3, 1, 4, 2, 5]]),
        ("slice", (4, 3), [(2, 2)], {"start_indices": (1, 1), "strides": (2, 1)}, [[4, 5, 10, 11]]),
        ("broadcast_in_dim", (2,), [(2, 3)], {"broadcast_dimensions": (0,)}, [[0, 0, 0, 1, 1, 1]]),
        ("split", (2, 4), [(2, 1), (2, 3)], {"axis": 1}, [[0, 4], [1, 2, 3, 5, 6, 7]]),
    ],
)
def test_views_show_the_elements_that_the_primitive_gives(
    name: str, shape: tuple[int, ...], results: list[tuple[int, ...]], arguments: Any, want: list[list[int]]
) -> None:
    strides = (*(operator.index(shape[-1]) for _ in shape[1:]), 1)
    found = layout_of(name, shape, strides, 0, results, arguments)
    assert found is not None
    assert [_places(each, *layout) for each, layout in zip(results, found, strict=True)] == want


def test_a_reshape_after_a_transposition_is_a_copy() -> None:
    assert layout_of("reshape", (3, 2), (1, 3), 0, [(6,)], {}) is None
