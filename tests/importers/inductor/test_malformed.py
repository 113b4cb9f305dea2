"""Damaged dumps: one error that names file, line and column, and shows the text; nothing in a dump is executed."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensortide.errors import TraceError
from tensortide.importers.inductor.importer import find_dumps
from tensortide.importers.inductor.read import read_dumps
from tensortide.importers.inductor.types import Bad, parse_type
from tests.importers.inductor.dumps import BACKWARD, FORWARD, WEIGHT, bare, body, trace
from tests.importers.mutations import damaged
from tests.importers.refusal import refused_in_one_line

ADD = 'a: "f32[4, 6]" = torch.ops.aten.add.Tensor(primals_1, 1)'

CASES = {
    "": "line 1: expected 'class <name>(torch.nn.Module):': (the file ends here)",
    "hello\n": "line 1: expected 'class <name>(torch.nn.Module):': 'hello'",
    "class A(torch.nn.Module):\n    x = 1\n": "line 2: expected 'def forward(self, ...):': 'x = 1'",
    body(ADD).replace("f32[4, 6]", "f33[4, 6]", 1): "line 2, column 35: unknown dtype f33 (known: f64, f32, ",
    body(ADD.replace("f32", "q9")): "line 3, column 13: unknown dtype q9 (known: f64, f32, ",
    body(ADD.replace("f32[4, 6]", "f32[4, ?]")): "line 3, column 20: no dimension: ?",
    body(ADD.replace("f32[4, 6]", "f32[4, ]")): "line 3, column 20: a dimension was expected",
    body(ADD.replace("f32[4, 6]", "f32[4, f(x)]")): "line 3, column 20: no dimension: f(x)",
    body(ADD.replace("f32[4, 6]", "f32[4, 6][6]")): "line 3, column 23: 1 strides for 2 dimensions",
    body(ADD.replace("f32[4, 6]", "float")): "line 3, column 13: a type such as f32[8, 3] was expected",
    body(ADD.replace("primals_1", "primals_7")): "line 3, column 52: nothing has defined primals_7",
    body(ADD, ADD): "line 4: a is defined twice",
    body(ADD.replace("a:", "primals_2:")): "line 3: primals_2 is defined twice",
    body(ADD[:-1]): "line 3, column 51: not Python: '(' was never closed",
    body(ADD + ")"): "line 3, column 65: not Python: unmatched ')'",
    body(ADD + "; import os"): "line 3, column 26: expected one call, and after it only '<name> = None'",
    body(ADD + ";  b = 1"): "line 3, column 26: expected one call, and after it only '<name> = None'",
    body("import os"): "line 3, column 1: expected '<name>: \"<type>\" = <call>' or 'return ...': 'import os'",
    body("a = b = torch.f()"): "line 3, column 9: expected one name before '='",
    body('a: "f32[4]" = primals_1 + 1'): "line 3: a is a tensor, so a call was expected",
    body('a: "f32[4]" = primals_1[0]'): "line 3: primals_1 has no part 0: it is one tensor",
    body('a: "f32[4]" = primals_1[x]'): "line 3: '<name>[<number>]' was expected",
    body('a: "f32[4]" = f(1)(2)'): "line 3: the call of a name such as torch.ops.aten.mul.Tensor was expected",
    body(ADD, result="(a, zz)"): "line 4, column 20: nothing has defined zz",
    body(ADD, result="(a, f(1))"): "line 4: 'return' of names and None was expected",
    body(ADD).replace("return ()", "return"): "line 4: expected 'return <names>'",
    body(ADD).replace("        return ()\n", ""): "line 4: expected 'return ...': (the file ends here)",
    body(ADD) + "x = 1\n": "line 5: expected nothing after the graph's 'return': 'x = 1'",
    body(ADD) + body(ADD): "line 5: expected nothing after the graph's 'return': 'class GraphModule",
    body(ADD).replace('"f32[6]"):', '"f32[6]"'): "line 2, column 16: not Python: '(' was never closed",
    body(ADD).replace("primals_2", "primals_1"): "line 2, column 47: primals_1 is a parameter twice",
    body(parameters='p: "f32[2]"'): "forward.py: no kernel in it",
    body("a = torch.ops.aten.add.Tensor(p, 1)", parameters="p"): "forward.py: nothing in it has a type, so no size is",
    body('a: "f32[' + "+".join(["1"] * 3000) + ']" = torch.f(primals_1)'): "line 3, column 17: ",
    body('a: "f32[2]" = torch.f(' + "+".join(["1"] * 30_000) + ")"): "line 3: ",
    body('a: "f32[2]" = torch.f(' + "(" * 300 + ")" * 301): "line 3, column ",
}


@pytest.mark.parametrize(("text", "said"), CASES.items(), ids=range(len(CASES)))
def test_one_error_that_says_where(text: str, said: str) -> None:
    message = refused(text)
    assert f"forward.py, {said}" in message or message.startswith(said), message


def refused(*texts: str) -> str:
    with pytest.raises(TraceError) as caught:
        trace(*texts)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 500
    return str(caught.value)


def test_a_type_that_is_nested_too_deeply() -> None:
    text = bare(FORWARD)
    deep = text.replace("f32[2, 4]", "a/" * 900 + "a", 1)
    assert deep != text
    assert "the type is nested too deeply" in refused(deep)


def test_graphs_that_contradict_each_other() -> None:
    wrong = BACKWARD.replace('primals_3: "f32[2, 4]"', 'primals_3: "f32[2, 5]"')
    assert "backward.py, line 2: primals_3 has another type than the primals_3 it stands for" in refused(FORWARD, wrong)
    wrong = BACKWARD.replace('getitem_1: "i64[2]"', 'getitem_1: "i32[2]"')
    assert "backward.py, line 2: getitem_1 has another type" in refused(FORWARD, wrong)


def test_nothing_is_executed(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    text = body(
        f'a: "f32[4]" = torch.f(open({str(victim)!r}, "w"), primals_1)',
        f'b: "f32[4]" = open({str(victim)!r}, "w")',
    )
    assert len(trace(text).graph) == 2
    assert not victim.exists()
    with pytest.raises(Bad, match="no dimension"):
        parse_type(f"f32[open({str(victim)!r})]".replace("'", '"'))


def test_files(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match=r"cannot read .*nowhere\.py: No such file"):
        read_dumps(tmp_path / "nowhere.py")
    with pytest.raises(TraceError, match=r"no fx_graph_transformed\.py"):
        find_dumps(tmp_path)
    for name, text in {"forward_1.0": FORWARD, "backward_2.1": BACKWARD, "inference_4.2": WEIGHT}.items():
        folder = tmp_path / "run" / f"model__{int('inf' in name)}_{name}"
        folder.mkdir(parents=True)
        (folder / "fx_graph_transformed.py").write_text(text)
    dumps = find_dumps(tmp_path)
    assert [path and path.parent.name for path in (*dumps.forward, *dumps.backward, dumps.weight)] == [
        "model__0_forward_1.0",
        "model__0_backward_2.1",
        "model__1_inference_4.2",
    ]
    assert read_dumps(*dumps).graph.ops == trace(FORWARD, BACKWARD, WEIGHT).graph.ops
    for name in ("inference_5.3", "inference_6.4"):
        other = tmp_path / "run" / f"model__{name[10]}_{name}"
        other.mkdir()
        (other / "fx_graph_transformed.py").write_text(WEIGHT if "5" in name else WEIGHT.replace("f32[8]", "f32[9]"))
        if "5" in name:  # the optimizer's graph, compiled again
            weight = find_dumps(tmp_path).weight
            assert weight is not None
            assert weight.parent == other
    with pytest.raises(TraceError, match=r"which of 3 graphs .* optimizer's is not clear: name .*\n  .*model__1"):
        find_dumps(tmp_path)


@given(st.data())
@pytest.mark.parametrize("style", [str, bare])
def test_a_damaged_dump_is_refused_with_one_line_or_still_valid(style: type[str], data: st.DataObject) -> None:
    texts = [style(FORWARD), style(BACKWARD), style(WEIGHT)]
    which = data.draw(st.integers(0, 2))
    texts[which] = data.draw(damaged(texts[which]))
    with refused_in_one_line(".py"):
        trace(*texts)


@given(st.text(alphabet="f32bi[]() ,*+-/0s1aMx:\"'", max_size=30))
def test_any_text_is_a_type_or_bad(text: str) -> None:
    with contextlib.suppress(Bad):
        parse_type(text)
