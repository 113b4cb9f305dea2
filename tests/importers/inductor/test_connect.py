"""Dumped graphs of one step with graph breaks: read together, they are the one graph of the same step without."""

from __future__ import annotations

from pathlib import Path

import pytest

from tensortide import count, timeline
from tensortide.errors import TraceError
from tensortide.graph import Role, validate
from tensortide.importers.imported import Imported
from tensortide.importers.inductor.importer import find_dumps
from tensortide.importers.inductor.read import Texts, read_dumps, trace_of_texts
from tensortide.importers.textfile import TextFile
from tests.importers.inductor.dumps import trace


def dump(parameters: str, *lines: str, result: str) -> str:
    body = "".join(f"        {line}\n" for line in lines)
    return f"class GraphModule(torch.nn.Module):\n    def forward(self, {parameters}):\n{body}        return {result}\n"


WEIGHT, BATCH, HIDDEN = "f32[8, 4]", "f32[2, 4]", "f32[2, 8]"
PRODUCT = (
    'permute: "f32[4, 8]" = torch.ops.aten.permute.default(primals_1, [1, 0])',
    f'mm: "{HIDDEN}" = torch.ops.aten.mm.default(primals_2, permute)',
)
LOSS = ('tanh: "f32[2, 8]" = torch.ops.aten.tanh.default({0})', 'sum_1: "f32[]" = torch.ops.aten.sum.default(tanh)')
SLOPE = (
    f'expand: "{HIDDEN}" = torch.ops.aten.expand.default(tangents_1, [2, 8])',
    f'mul: "{HIDDEN}" = torch.ops.aten.mul.Tensor(expand, tanh)',
)
GRADIENT = (
    'permute_1: "f32[8, 2]" = torch.ops.aten.permute.default({0}, [1, 0])',
    f'mm_1: "{WEIGHT}" = torch.ops.aten.mm.default(permute_1, primals_2)',
)


def filled(lines: tuple[str, ...], name: str) -> tuple[str, ...]:
    return tuple(line.format(name) for line in lines)


WHOLE = (
    dump(
        f'primals_1: "{WEIGHT}", primals_2: "{BATCH}"', *PRODUCT, *filled(LOSS, "mm"), result="(sum_1, primals_2, tanh)"
    ),
    dump(
        f'primals_2: "{BATCH}", tanh: "{HIDDEN}", tangents_1: "f32[]"',
        *SLOPE,
        *filled(GRADIENT, "mul"),
        result="(mm_1, None)",
    ),
)
FORWARD = (
    dump(f'primals_1: "{WEIGHT}", primals_2: "{BATCH}"', *PRODUCT, result="(mm, primals_2)"),
    dump(f'primals_1: "{HIDDEN}"', *filled(LOSS, "primals_1"), result="(sum_1, tanh)"),
)
BACKWARD = (
    dump(f'primals_2: "{BATCH}", tangents_1: "{HIDDEN}"', *filled(GRADIENT, "tangents_1"), result="(mm_1, None)"),
    dump(f'tanh: "{HIDDEN}", tangents_1: "f32[]"', *SLOPE, result="(mul,)"),
)


def joined(forward: tuple[str, ...] = FORWARD, backward: tuple[str, ...] = BACKWARD) -> Imported:
    files = [[TextFile(f"{i}.py", text) for i, text in enumerate(texts)] for texts in (forward, backward)]
    return trace_of_texts(Texts(files[0], files[1]))


def test_parts_of_a_step_are_the_whole() -> None:
    parts, whole = joined().graph, trace(*WHOLE).graph
    validate(parts)
    assert [op.name for op in parts] == [op.name for op in whole]
    assert [(s.name, s.nbytes, s.birth, s.death) for s in parts.storages] == [
        (s.name, s.nbytes, s.birth, s.death) for s in whole.storages
    ]
    roles = [{s.name: s.role for s in graph.storages} for graph in (parts, whole)]
    assert roles[0] == roles[1] | {"mul": Role.GRADIENT}  # what a graph returns for the one before it
    assert timeline(parts).peak_bytes == timeline(whole).peak_bytes
    assert count(parts).total == count(whole).total
    assert any("2 forward graphs are connected" in note for note in parts.meta.assumptions)


def test_a_result_that_a_later_graph_takes_is_its_parameter() -> None:
    between = dump(
        f'primals_1: "{HIDDEN}"', f'neg: "{WEIGHT}" = torch.ops.aten.neg.default(primals_1)', result="(neg,)"
    )
    third = dump(f'primals_1: "{WEIGHT}", primals_2: "{HIDDEN}"', *filled(LOSS, "primals_2"), result="(sum_1,)")
    made = joined((FORWARD[0], between, third), ())
    tanh = next(op for op in made.graph if op.name == "aten.tanh.default")
    product = next(op for op in made.graph if op.name == "aten.mm.default")
    assert tanh.inputs == product.outputs


@pytest.mark.parametrize(
    ("second", "message"),
    [
        (dump('primals_1: "f32[3]"', 'neg: "f32[3]" = torch.neg(primals_1)', result="(neg,)"), "1.py: takes nothing"),
        (
            dump(
                f'primals_1: "{HIDDEN}", primals_2: "{HIDDEN}"',
                f'add: "{HIDDEN}" = torch.ops.aten.add.Tensor(primals_1, primals_2)',
                result="(add,)",
            ),
            "1.py: which of primals_1, primals_2 earlier graphs",
        ),
    ],
)
def test_graphs_that_are_not_clearly_connected_are_refused_in_one_line(second: str, message: str) -> None:
    with pytest.raises(TraceError, match=f"{message}.*name the files of one graph") as refused:
        joined((FORWARD[0], second), ())
    assert "\n" not in str(refused.value)


def test_a_folder_of_graphs_is_read_in_the_order_in_which_they_were_compiled(tmp_path: Path) -> None:
    names = ("model__7_forward_1.0", "model__2_forward_4.1", "model__7_backward_9.3", "model__2_backward_8.2")
    for name, text in zip(names, (*FORWARD, *BACKWARD), strict=True):
        (tmp_path / name).mkdir()
        (tmp_path / name / "fx_graph_transformed.py").write_text(text)
    assert read_dumps(*find_dumps(tmp_path)).graph.ops == joined().graph.ops
