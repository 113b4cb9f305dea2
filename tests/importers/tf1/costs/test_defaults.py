"""The published graphs under our own rules: products, parameters, footprints; formulas that agree with the numbers."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tensortide.cost import Count, count
from tensortide.cost.table import QUANTITIES, table_of
from tensortide.expr import compiled, expr_of, parse
from tensortide.graph import Phase, Role, load, save
from tensortide.graph.sizes import known_sizes
from tensortide.memory import footprint_bytes
from tests.importers.tf1.costs.files import step
from tests.marks import some_slow

GRAPHS = (
    "simple_while", "simple_example", "static_unroll", "dynamic_rnn", "dynamic_rnn_with_backprop", "word2vec",
    "word_lm", "resnet18", "bert_cased_L12",
)  # fmt: skip


def counted(reference: Path, name: str) -> Count:
    return count(step(reference, name).graph)


def test_word_lm(reference: Path) -> None:
    """Two LSTM layers and a softmax: 8h x 2h per layer, step and sample, three times; h v per word, three times."""
    found = counted(reference, "word_lm")
    products = expr_of(2 * found.total.macs)
    assert products == parse("96*h**2*b*s + 6*h*s*b*v")
    assert products.evaluate({"h": 2004, "v": 10004, "s": 80, "b": 64}) == 2_589_827_235_840
    held = found.sizes
    assert (held.trainable, held.parameters, held.buffers) == (104_378_324, 104_378_324, 2)
    assert expr_of(held.trainable) == parse("16*h**2 + 2*h*v + 8*h + v")


def test_word_lm_accumulates_weight_gradients_in_one_buffer(reference: Path) -> None:
    """Of the weight gradient per loop: the accumulator 32 h^2 bytes once, 32 h^2 for what each step adds."""
    graph = step(reference, "word_lm").graph
    squares = expr_of(footprint_bytes(graph)).coefficients("h")[2]
    assert squares.coefficients("s")[1] == 2 * 32
    sums = [
        expr_of(view.outputs[0].numel)
        for view in graph
        if view.call.mutated and view.op.loop >= 0 and "Stack" not in view.name
    ]
    assert Counter(sums) == {parse("8*h**2"): 2, parse("4*h"): 2, parse("1"): 4}


def test_resnet(reference: Path) -> None:
    """The first convolution's input gradient, which nobody uses, is not part of the step."""
    found = counted(reference, "resnet18")
    assert 2 * found.total.macs == 340_749_189_120
    dead = 2 * 32 * 224 * 224 * 3 * 64 * 49 // 4
    assert 2 * found.total.macs + dead == 348_302_082_048
    held = found.sizes
    assert (held.trainable, held.optimizer_state_bytes) == (11_689_512, 4 * 11_689_512)


def test_bert(reference: Path) -> None:
    found = counted(reference, "bert_cased_L12")
    assert 2 * found.total.macs == 22_348_431_360 + 393_216
    assert found.sizes.trainable == 108_932_934
    products = parse("96*H**2*s + 2*H**2 + 48*H*I*s + 48*H*s**2 + 4*H*s").subs({"H": parse("a*d")})
    assert expr_of(2 * found.total.macs).subs({"b": 1}) == products


@pytest.mark.parametrize("name", GRAPHS)
def test_every_op_has_a_rule(reference: Path, name: str) -> None:
    found = counted(reference, name)
    assert found.coverage.complete, found.coverage.line()


@pytest.mark.parametrize("name", some_slow(GRAPHS, ["bert_cased_L12", "resnet18"]))
def test_rows_times_trips_are_the_totals(reference: Path, name: str) -> None:
    """As expressions; and their values are the integers."""
    imported = step(reference, name)
    found = count(imported.graph)
    table = table_of(found, imported.symbols)
    assert table.totals["flops"] == expr_of(found.total.flops)
    assert table.totals["bytes"] == expr_of(found.total.accessed_bytes)
    assert table.totals["footprint"] == expr_of(footprint_bytes(imported.graph))
    assert table.totals["parameters"] == expr_of(found.sizes.trainable)
    flops, nbytes = compiled([table.totals["flops"], table.totals["bytes"]])(imported.symbols)
    assert (flops, nbytes) == (found.total.flops, found.total.accessed_bytes)
    by_phase = [expr_of(total.flops) for total in found.by_phase.values()]
    assert sum(by_phase, start=expr_of(0)) == table.totals["flops"]
    by_module = [expr_of(tree.inclusive.flops) for tree in found.modules]
    assert sum(by_module, start=expr_of(0)) == table.totals["flops"]


@pytest.mark.parametrize("name", some_slow(GRAPHS, ["bert_cased_L12", "resnet18", "word_lm", "word2vec"]))
def test_other_settings_are_other_values_of_the_same_formulas(reference: Path, name: str) -> None:
    """Counting at other sizes gives what the formulas of all ops say at these, at three settings."""
    imported = step(reference, name)
    table = table_of(count(imported.graph), imported.symbols)
    evaluate = compiled([table.totals[quantity] for quantity in QUANTITIES])
    for factor in (1, 2, 5):
        # Sizes of a file may be halves or heads of others: multiples of the stored values are legal.
        settings = {symbol: factor * value for symbol, value in imported.symbols.items()}
        other = step(reference, name, **settings).graph
        found = count(other)
        totals = dict(zip(QUANTITIES, evaluate(settings), strict=True))
        assert totals["flops"] == found.total.flops
        assert totals["bytes"] == found.total.accessed_bytes
        assert totals["footprint"] == footprint_bytes(other)
        assert totals["parameters"] == found.sizes.trainable


def test_phases_of_a_training_graph(reference: Path) -> None:
    found = counted(reference, "resnet18")
    macs = {phase: total.macs for phase, total in found.by_phase.items()}
    assert macs["forward"] == 32 * 1_814_073_344
    assert macs["forward"] + macs["backward"] == found.total.macs
    updates = [op for op in found.graph.ops if found.graph.calls[op.call].op == "tf.ApplyMomentum"]
    assert {op.phase for op in updates} == {Phase.OPTIMIZER}
    assert len(updates) == 62


def test_a_symbolic_graph_survives_the_file(reference: Path, tmp_path: Path) -> None:
    imported = step(reference, "word_lm")
    save(imported.graph, tmp_path / "g.tide")
    again = load(tmp_path / "g.tide")
    assert again == imported.graph
    assert known_sizes(again) == {name: imported.symbols[name] for name in ("b", "h", "s", "v")}
    assert expr_of(count(again).total.flops) == expr_of(count(imported.graph).total.flops)


def test_inputs_are_what_the_step_reads(reference: Path) -> None:
    """A queue feeds the ResNet; its placeholders feed the queue."""
    graph = step(reference, "resnet18").graph
    fed = [entry.name for entry in graph.named if entry.role is Role.INPUT]
    assert any("input" in name.lower() for name in fed)
    assert count(graph).sizes.input_bytes == 32 * (224 * 224 * 3 + 4)
