"""Ops told as rows of a family: the same work as the functions that they replace, errors that say where."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tensortide.cost import FAMILIES, Cost, read_rows, registry
from tensortide.errors import TensortideError
from tests.cost.probe import single, tensor


@pytest.fixture(autouse=True)
def _unchanged() -> Iterator[None]:
    registry.names()
    before = dict(registry._table)
    yield
    registry._table.clear()
    registry._table.update(before)


def cost(op: str, arguments: dict[str, Any], *out: Any) -> Cost:
    found = single(f"{op.replace('::', '.')}.default", arguments, *out).cost
    assert found is not None
    return found


OPS = """
[ops."mylib::mix mylib::blend"]
family = "contraction"
letters = "*k,kn"
operands = "x weight"
bias = "bias"
then = "activation"

[ops."mylib::squash"]
family = "elementwise"
weights = "sigmoid"

[ops."mylib::shift"]
family = "free"
"""


def test_rows_of_a_file_are_rules_like_any_other(tmp_path: Path) -> None:
    file = tmp_path / "ops.toml"
    file.write_text(OPS)
    read_rows(file)
    given = {"x": tensor(2, 3, 5), "weight": tensor(5, 7)}
    plain = cost("mylib::mix", given, tensor(2, 3, 7))
    assert (plain.macs, plain.elementwise_flops) == (2 * 3 * 5 * 7, 0)
    assert (plain.read_bytes, plain.written_bytes) == (4 * (30 + 35), 4 * 42)
    more = cost("mylib::blend", {**given, "bias": tensor(7), "activation": "relu"}, tensor(2, 3, 7))
    assert (more.macs, more.elementwise_flops, more.comparisons) == (plain.macs, 2 * 42, 42)
    assert cost("mylib::squash", {"x": tensor(4)}, tensor(4)) == cost("aten::sigmoid", {"self": tensor(4)}, tensor(4))
    assert cost("mylib::shift", {"x": tensor(4)}, tensor(4)).bytes == 0
    mix = registry.find("mylib::mix")
    assert mix is not None
    assert mix.family == "contraction"


def test_operands_that_do_not_fit_make_an_op_unknown() -> None:
    read_rows({"mylib::mix": {"family": "contraction", "letters": "*k,kn", "operands": "x weight"}})
    wrong = single("mylib.mix.default", {"x": tensor(2, 5), "weight": tensor(5, 7)}, tensor(2, 6))
    assert wrong.cost is None
    assert single("mylib.mix.default", {"x": tensor(2, 5), "weight": tensor(5)}, tensor(2)).cost is None


@pytest.mark.parametrize(
    ("row", "error"),
    [
        ({}, r"family: there is no ''.\nGive one of: .*contraction"),
        ({"family": "mix"}, "family: there is no 'mix'"),
        ({"family": ["sum"]}, r"family: there is no .*sum"),
        (3, "3 is no row"),
        ({"family": "reduction", "how": "sum", "axis": 1}, r"axis: reduction takes no such key.\nIt takes: how, then."),
        ({"family": "elementwise", "weights": 1, "bytes": "interface"}, "bytes: elementwise takes no such key"),
        ({"family": "reduction"}, r"how: reduction needs this key.\nIt takes: how, then."),
        ({"family": "reduction", "how": "middle"}, r"how: there is no 'middle'.\nGive one of: .*mean"),
        ({"family": "pool", "how": "sun", "window": "k"}, "how: there is no 'sun'"),
        ({"family": "decomposition", "what": "qs"}, "what: there is no 'qs'"),
        ({"family": "normalization", "by": "zz"}, "by: there is no 'zz'"),
        ({"family": "scatter", "into": "x"}, "into: there is no 'x'"),
        ({"family": "elementwise", "weights": "sigmoyd"}, r"weights: there is no 'sigmoyd'.\nGive one of: .*sigmoid"),
        *(
            ({"family": "elementwise", "weights": wrong}, "weights: .* neither a name nor whole numbers")
            for wrong in (-1, 1.5, True, [], ["a", "b"], [1, 2, 3, 4, 5])
        ),
        *(
            ({"family": "contraction", "letters": wrong}, "letters: .* does not say which dimension is k")
            for wrong in ("...k,nk", "*k*,kn", "ab,bc", "*k,qn", "*,*")
        ),
        ({"family": "convolution", "letters": "XYZ"}, "letters: .* does not say which dimension is O"),
        ({"family": "contraction", "letters": 3}, "letters: 3 is not a text"),
        ({"family": "gather", "indices": ["a"]}, r"indices: \['a'\] is not a text"),
        ({"family": "fourier", "axes": 0}, "axes: 0 is below 1"),
        ({"family": "free", "then": 3}, "then: 3 is not a text"),
    ],
)
def test_a_row_that_is_wrong_says_where(row: Any, error: str) -> None:
    with pytest.raises(TensortideError, match=f"rows of ops: mylib::op: {error}"):
        read_rows({"mylib::fine": {"family": "free"}, "mylib::op": row})
    assert registry.find("mylib::fine") is None


@pytest.mark.parametrize("name", ["mm", "", "aten::mm", "onnx::MatMul", "mylib::fine"])
def test_rows_are_registered_all_or_none(name: str) -> None:
    with pytest.raises(
        TensortideError, match=r"rows of ops: .*(not an op name|has a cost rule already|is given twice)"
    ):
        read_rows({"mylib::fine": {"family": "free"}, f"mylib::fine2 {name}" if name else "": {"family": "free"}})
    assert (registry.find("mylib::fine"), registry.find("mylib::fine2")) == (None, None)


def test_a_row_for_an_op_of_ours_breaks_nothing_before_the_first_count() -> None:
    code = """
        from tensortide.cost import read_rows, registry
        from tensortide.errors import TensortideError
        try:
            read_rows({"aten::mm": {"family": "free"}})
        except TensortideError as error:
            print(error)
        print(registry.find("aten::mm").family)
    """
    ran = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, check=True)
    assert "aten::mm has a cost rule already" in ran.stdout
    assert ran.stdout.splitlines()[-1] == "contraction"


def test_the_example_of_the_docstring_counts() -> None:
    example = textwrap.dedent((read_rows.__doc__ or "").split("\n\n")[1])
    read_rows(tomllib.loads(example)["ops"])
    found = cost("mylib::mix", {"x": tensor(2, 3, 5), "weight": tensor(7, 5)}, tensor(2, 3, 7))
    assert found.macs == 2 * 3 * 5 * 7


@pytest.mark.parametrize(
    "text", ["", "family = 3", "[ops]\nmix = 3", "[ops.", "[ops.'m::a']\nfamily = 'free'\n[opz.a]"]
)
def test_a_file_without_rows_says_so(tmp_path: Path, text: str) -> None:
    file = tmp_path / "ops.toml"
    file.write_text(text)
    with pytest.raises(TensortideError, match=r"ops\.toml"):
        read_rows(file)
    with pytest.raises(TensortideError, match=r"absent\.toml: No such file or directory: name a TOML file"):
        read_rows(tmp_path / "absent.toml")


def test_every_family_says_what_it_is_for() -> None:
    for name, made in FAMILIES.items():
        assert made.__doc__, name


def test_ops_of_all_vocabularies_know_their_family() -> None:
    """Rows of one function have one family, whoever names it."""
    for names, family in {
        "aten::convolution onnx::Conv tf::Conv2D tflite::CONV_2D keras::Conv2D": "convolution",
        "aten::_softmax onnx::Softmax tf::Softmax tflite::SOFTMAX keras::ops_Softmax": "softmax",
        "aten::mm onnx::MatMul jax::dot_general tf::MatMul tflite::FULLY_CONNECTED keras::Dense": "contraction",
        "aten::embedding onnx::Gather jax::gather tf::GatherV2 tflite::GATHER keras::Embedding": "gather",
    }.items():
        assert {getattr(registry.find(name), "family", None) for name in names.split()} == {family}


@pytest.mark.parametrize(
    "op",
    [
        *("onnx.Hardmax", "onnx.Softmax", "onnx.CumSum", "aten.logcumsumexp", "aten._log_softmax", "aten.cummin"),
        *("tf.SoftmaxCrossEntropyWithLogits", "tf.SparseSoftmaxCrossEntropyWithLogits"),
    ],
)
def test_rows_without_elements_cost_nothing(op: str) -> None:
    found = single(op, {"self": tensor(3, 0), "axis": 1, "dim": 1}, tensor(3, 0)).cost
    assert found is not None
    assert (found.elementwise_flops, found.comparisons, found.transcendentals) == (0, 0, 0)


def test_a_file_of_rows_that_is_read_again_replaces_what_it_said(tmp_path: Path) -> None:
    """Also for the sharding rule of an op that was met before its row."""
    from tensortide.parallelism.rules import rule_of

    assert rule_of("again.mix.default") is None
    file = tmp_path / "ops.toml"
    file.write_text('[ops."again::mix again::gone"]\nfamily = "contraction"\nletters = "mk,kn"\n')
    read_rows(file)
    assert rule_of("again.mix.default") is not None
    file.write_text('[ops."again::mix"]\nfamily = "free"\n')
    read_rows(str(file))
    found = registry.find("again::mix")
    assert found is not None
    assert found.family == "free"
    assert registry.find("again::gone") is None
    assert rule_of("again.mix.default") is None
    with pytest.raises(TensortideError, match="again::mix has a cost rule already"):
        read_rows({"again::mix": {"family": "move"}})
    read_rows({"again::one": {"family": "free"}})
    read_rows({"again::two": {"family": "free"}})
    read_rows({"again::one": {"family": "move"}})
    assert [rule.family for name in ("one", "two") if (rule := registry.find(f"again::{name}"))] == ["move", "free"]
