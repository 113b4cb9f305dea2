"""Dumps by hand: styles, sources, views, symbols, names by phase, the optimizer's arguments."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from tensortide.errors import TraceError
from tensortide.graph import OUTSIDE, Const, Phase, Role, load, save, validate
from tensortide.importers.imported import Imported
from tensortide.importers.inductor.read import Texts, trace_of_texts
from tensortide.importers.textfile import TextFile
from tensortide.timelines import NEVER_READ, liveness
from tests.importers.inductor.dumps import BACKWARD, FORWARD, STEP, WEIGHT, bare, body, newer, trace


def test_all_styles_are_one_graph() -> None:
    plain = trace(FORWARD, BACKWARD, WEIGHT)
    validate(plain.graph)
    assert trace(*map(bare, (FORWARD, BACKWARD, WEIGHT))) == plain
    windows = [text.replace("\n", "\r\n") for text in (FORWARD, BACKWARD, WEIGHT)]
    assert trace(*windows) == plain
    strided = trace(*map(newer, (FORWARD, BACKWARD, WEIGHT)))
    assert strided.kernels == plain.kernels
    assert strided.graph.ops == plain.graph.ops
    assert [tensor.shape for tensor in strided.graph.tensors] == [tensor.shape for tensor in plain.graph.tensors]
    assert {storage.device for storage in strided.graph.storages} == {"cuda:0"}
    assert trace(*(bare(newer(text)) for text in (FORWARD, BACKWARD, WEIGHT))) == strided


def test_kernels_and_tensors_are_numbered_as_they_come_up() -> None:
    made = trace(FORWARD, BACKWARD)
    assert [op.label for op in made.graph.ops[:5]] == ["add", "permute", "addmm", "max_1", "copy_"]
    assert made.kernels[3] == "torch.ops.aten.max.dim(addmm, 1)"
    assert made.tensors[:10] == (
        *("primals_1", "primals_2", "primals_3", "primals_4"),
        *("add", "permute", "addmm", "getitem", "getitem_1", "copy_"),
    )
    assert made.tensors[10] == "tangents_1"
    assert [made.tensors[index] for index in made.graph.ops[3].outputs] == ["getitem", "getitem_1"]


def test_a_name_of_the_backward_is_a_new_tensor() -> None:
    made = trace(FORWARD, BACKWARD)
    assert made.tensors.count("addmm") == 2
    forward, backward = (index for index, name in enumerate(made.tensors) if name == "addmm")
    lives = liveness(made.graph, "compat")
    assert lives[forward].uses == (2, 3)
    assert lives[backward].uses == (8, 9, 11)
    assert {op.phase for op in made.graph.ops[:5]} == {Phase.FORWARD}
    assert {op.phase for op in made.graph.ops[5:]} == {Phase.BACKWARD}


def test_what_the_user_wrote_stays_with_its_ops() -> None:
    made = trace(FORWARD)
    source = made.graph[1].source
    assert source is not None
    assert (source.file, source.line, source.function) == ("/code/model.py", 13, "forward (Model.forward)")
    assert source.code == "y = self.linear(x)"
    assert made.graph[2].source == source
    assert made.graph.ops[3].source == OUTSIDE


def test_older_comments_name_no_function() -> None:
    made = trace(FORWARD.replace(" in forward (Model.forward), code", ", code"))
    source = made.graph[1].source
    assert source is not None
    assert (source.line, source.function, source.code) == (13, "", "y = self.linear(x)")


def test_the_graph_can_be_saved(tmp_path: Path) -> None:
    for made in (trace(FORWARD, BACKWARD, WEIGHT), trace(bare(SYMBOLIC), bind={"s0": 2, "s1": 3})):
        save(made.graph, tmp_path / "step.tide")
        assert load(tmp_path / "step.tide") == made.graph


def test_lives_by_storage() -> None:
    """Views cost nothing, what is saved lives until it is used, outputs and gradients outlive the step."""
    made = trace(FORWARD, BACKWARD)
    graph = made.graph
    storages = {storage.name: storage for storage in graph.storages}
    assert "permute" not in storages
    assert graph.tensors[5].storage == 0
    assert graph.tensors[5].strides == (1, 4)
    assert graph.tensors[9].storage == 3, "copy_ writes its argument"
    assert graph[4].written_storages == {3}
    assert (storages["getitem"].role, storages["getitem"].death) == (Role.OUTPUT, None)
    assert (storages["getitem_1"].birth, storages["getitem_1"].death) == (3, 9)
    assert (storages["tangents_1"].birth, storages["tangents_1"].death) == (5, 9)
    assert (storages["mm"].role, storages["mm"].death) == (Role.GRADIENT, None)
    assert storages["primals_4"].role is Role.BUFFER
    assert liveness(graph, "compat")[5].birth == 1, "but in mode compat a view owns its bytes"


def test_a_result_that_is_saved_too_outlives_the_step() -> None:
    both = FORWARD.replace(
        "return (getitem, primals_3, getitem_1)", "return (getitem, getitem_1, primals_3, getitem_1)"
    )
    storages = {storage.name: storage for storage in trace(both, BACKWARD).graph.storages}
    assert (storages["getitem_1"].role, storages["getitem_1"].death) == (Role.OUTPUT, None)


def test_calls_look_as_if_they_had_been_captured() -> None:
    pytest.importorskip("torch")
    graph = trace(FORWARD, BACKWARD, WEIGHT).graph
    assert graph[2].name == "aten.addmm.default"
    assert list(graph[2].arguments) == ["self", "mat1", "mat2"]
    full = graph[5].arguments
    assert (full["size"], full["fill_value"]) == ((2, 8), 0)
    assert (full["dtype"], full["device"]) == (Const("dtype", "float32"), Const("device", "cpu"))
    alphas = [op.arguments["alpha"] for op in graph if "alpha" in op.arguments]
    assert alphas == [-0.1, -0.1]


def test_ops_that_nobody_knows_keep_to_themselves() -> None:
    text = body(
        'a: "f32[4, 6]" = torch.ops.mine.thing.default(primals_1, [primals_2, None], inf, x = {"k": primals_2})',
        'b: "f32[4, 6]" = torch.ops.aten.relu.default(a, 1, 2, 3, 4)',
        result="(b,)",
    )
    graph = trace(text).graph
    validate(graph)
    assert [op.name for op in graph] == ["fx.mine.thing.default", "fx.aten.relu.default"]
    assert graph.ops[0].inputs == (0, 1, 1)
    assert graph[0].arguments["x2"] == math.inf


def test_the_optimizer_takes_over_weights_and_gradients() -> None:
    made = trace(FORWARD, BACKWARD, WEIGHT)
    assert made.tensors.count("arg4_1") == 1, "momentum is its own"
    assert not any(name in made.tensors for name in ("arg0_1", "arg1_1", "arg2_1", "arg3_1"))
    roles = {storage.name: storage.role for storage in made.graph.storages}
    assert (roles["primals_1"], roles["primals_2"]) == (Role.PARAMETER, Role.PARAMETER)
    assert roles["arg4_1"] is Role.OPTIMIZER_STATE
    mm = made.tensors.index("mm")
    assert made.graph.ops[liveness(made.graph, "compat")[mm].uses[-1]].phase is Phase.OPTIMIZER


def test_an_optimizer_that_could_be_read_in_two_ways_is_not_guessed() -> None:
    twice = WEIGHT.replace('arg4_1: "f32[8]"', 'arg5_1: "f32[8, 4]", arg4_1: "f32[8]"').replace(
        "        return", '        copy__3: "f32[8, 4]" = torch.ops.aten.copy_.default(arg5_1, arg0_1)\n        return'
    )
    made = trace(FORWARD, BACKWARD, twice)
    validate(made.graph)
    assert "arg0_1" in made.tensors
    assert "arg2_1" not in made.tensors, "the gradients are certain"
    (note,) = [note for note in made.graph.meta.assumptions if "optimizer" in note]
    assert "weights (2 ways) is not certain" in note


def test_an_optimizer_without_a_backward_stands_alone() -> None:
    forward, weight = (TextFile(f"{phase}.py", STEP[phase]) for phase in (Phase.FORWARD, Phase.OPTIMIZER))
    made = trace_of_texts(Texts([forward], [], weight))
    validate(made.graph)
    assert "arg0_1" in made.tensors
    assert any("without a backward graph" in note for note in made.graph.meta.assumptions)


def test_parts_of_parts_and_numbers() -> None:
    text = body(
        'sym_size: "Sym(s0)" = torch.ops.aten.sym_size.int(primals_1, 0)',
        'mul: "Sym(2*s0)" = sym_size * 2',
        "neg = -mul",
        "both = torch.ops.mine.nested.default(primals_1, mul)",
        "inner = both[1]",
        'a: "f32[6]" = inner[0]',
        'b: "i64[2*s0]" = operator.getitem(both, 0);  both = None',
        'again: "f32[6]" = inner[0];  inner = None',
        'n: "Sym(u0)" = torch.ops.aten._local_scalar_dense.default(b)',
        "check = torch._check_is_size(n);  check = None",
        result="(a, b)",
    )
    made = trace(text, bind={"s0": 3})
    validate(made.graph)
    assert [op.label for op in made.graph.ops] == ["both", "n", "check"]
    assert made.tensors == ("primals_1", "primals_2", "a", "b", "again")
    assert made.graph.tensors[3].shape == (6,)
    assert made.graph.tensors[4].storage == made.graph.tensors[2].storage


def test_constants_and_inner_modules() -> None:
    text = (
        body(
            '_tensor_constant0: "f32[6]" = self._tensor_constant0;  _tensor_constant0 = None',
            "true_graph_0 = self.true_graph_0",
            "false_graph_0 = self.false_graph_0",
            "cond = torch.ops.higher_order.cond(primals_2, true_graph_0, false_graph_0, (primals_1,))",
            'getitem: "f32[4]" = cond[0];  cond = None',
            result="(getitem, _tensor_constant0)",
        )
        + "\n    class true_graph_0(torch.nn.Module):\n        def forward(self, x):\n            return (x,)\n"
    )
    made = trace(text)
    validate(made.graph)
    assert [op.label for op in made.graph.ops] == ["cond"]
    assert made.graph.ops[0].inputs == (1, 0)
    assert made.graph.storages[2].role is Role.BUFFER


@pytest.mark.parametrize(
    ("node", "strides"),
    [
        ('"f32[6, 4]" = torch.ops.aten.permute.default(primals_1, [1, 0])', (1, 6)),
        ('"f32[6, 4]" = torch.ops.aten.t.default(primals_1)', (1, 6)),
        ('"f32[6, 4]" = torch.ops.aten.transpose.int(primals_1, -1, 0)', (1, 6)),
        ('"f32[2, 12]" = torch.ops.aten.view.default(primals_1, [2, 12])', (12, 1)),
        ('"f32[2, 12]" = torch.ops.aten.reshape.default(primals_1, [2, 12])', (12, 1)),
        ('"f32[4, 1, 6]" = torch.ops.aten.unsqueeze.default(primals_1, 1)', (6, 6, 1)),
        ('"f32[3, 4, 6]" = torch.ops.aten.expand.default(primals_1, [3, 4, 6])', (0, 6, 1)),
        ('"f32[4, 2]" = torch.ops.aten.slice.Tensor(primals_1, 1, 0, 2)', (6, 1)),
        ('"f32[4, 6]" = torch.ops.aten.relu_.default(primals_1)', (6, 1)),
        ('"f32[4, 6]" = torch.ops.aten.relu.default(primals_1)', None),
        ('"f32[4, 6]" = torch.ops.aten.clone.default(primals_1)', None),
    ],
)
def test_views(node: str, strides: tuple[int, ...] | None) -> None:
    graph = trace(body(f"out: {node}")).graph
    validate(graph)
    assert (graph.tensors[2].storage == 0) == (strides is not None)
    if strides is not None and "unsqueeze" not in node:
        assert graph.tensors[2].strides == strides


def test_a_reshape_that_must_copy_is_no_view() -> None:
    text = body(
        'p: "f32[6, 4]" = torch.ops.aten.permute.default(primals_1, [1, 0])',
        'flat: "f32[24]" = torch.ops.aten.reshape.default(p, [24])',
        'back: "f32[3, 2, 4]" = torch.ops.aten.reshape.default(p, [3, 2, 4])',
    )
    graph = trace(text).graph
    assert [tensor.storage for tensor in graph.tensors] == [0, 1, 0, 2, 0]


SYMBOLIC = body(
    'a: "f32[s0, s0*s1 + 1]" = torch.ops.mine.f.default(primals_2, primals_1)',
    'b: "f32[Max(1, ((s1 - 1)//2) + 1)]" = torch.ops.mine.g.default(a);  a = None',
    parameters='primals_1: "Sym(s0)", primals_2: "f32[s0, 3]"',
    result="(b,)",
)


def test_symbols_without_values_leave_sizes_unknown() -> None:
    made = trace(SYMBOLIC)
    validate(made.graph)
    assert made.tensors == ("primals_2", "a", "b")
    assert made.unknown == (0, 1, 2)
    assert "the sizes of 3 tensors are unknown and count 0 bytes: no value for s0, s1" in made.graph.meta.assumptions
    assert [life.uses for life in liveness(made.graph, "compat")] == [(0,), (0, 1), (1,)]
    assert trace(SYMBOLIC, bind={"s1": 5}).unknown == (0, 1)


def test_symbols_with_values() -> None:
    made = trace(SYMBOLIC, bind={"s0": 32, "s1": 5})
    assert made.unknown == ()
    assert [tensor.shape for tensor in made.graph.tensors] == [(32, 3), (32, 161), (3,)]
    assert made.graph.storages[1].nbytes == 32 * 161 * 4
    with pytest.raises(TraceError, match=r"no dimension s9 in forward\.py"):
        trace(SYMBOLIC, bind={"s9": 1})
    with pytest.raises(TraceError, match=r"line 3: s0\*s1 \+ 1 is -4, no size|s0 is a size: -1 is none"):
        trace(SYMBOLIC, bind={"s0": -1, "s1": 5})


def test_every_dtype_tag() -> None:
    sizes = {"f64": 8, "f32": 4, "f16": 2, "bf16": 2, "i64": 8, "i32": 4, "i16": 2, "i8": 1, "u8": 1, "b8": 1, "c64": 8}
    sizes |= {"c128": 16, "c32": 4, "u16": 2, "u32": 4, "u64": 8, "f8e4m3fn": 1, "f8e5m2": 1}
    parameters = ", ".join(f'p{index}: "{tag}[3]"' for index, tag in enumerate(sizes))
    graph = trace(body('a: "f32[]" = torch.ops.mine.f.default(p0)', parameters=parameters)).graph
    assert [storage.nbytes for storage in graph.storages] == [*(3 * size for size in sizes.values()), 4]


def test_a_backward_alone() -> None:
    made = trace_backward(BACKWARD)
    validate(made.graph)
    persistent = [life.index for life in liveness(made.graph, "compat") if life.persistent]
    assert [made.tensors[index] for index in persistent] == ["primals_3"]
    assert liveness(made.graph, "compat")[made.tensors.index("mm")].death == NEVER_READ


def trace_backward(text: str) -> Imported:
    return trace_of_texts(Texts([], [TextFile("backward.py", text)]))
