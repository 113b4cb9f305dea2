"""SavedModels, read without TensorFlow: their costs are those derived by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import tensortide
from tensortide.cost import count
from tensortide.errors import TraceError, WorkloadError
from tensortide.importers.imported import Imported
from tests.importers import truths

COUNTED = ("convs", "embedding_train_step", "mlp", "moe_topk", "recurrent", "while_constant")


def opened(name: str, **options: Any) -> Imported:
    return tensortide.open(truths.folder() / "savedmodel" / name, **options)


def of_its_batch(name: str) -> Imported:
    sizes = {"batch": truths.batch(f"savedmodel/{name}")} if "batch" in opened(name).symbols else {}
    return tensortide.open(truths.folder() / "savedmodel" / name, hyperparameters=sizes)


@pytest.mark.parametrize("name", COUNTED)
def test_products_and_parameters_are_those_derived_by_hand(name: str) -> None:
    record, step = truths.truth()[f"savedmodel/{name}"], of_its_batch(name)
    assert count(step.graph, strict=True).total.macs == record["macs"]
    known = record["parameters"]
    assert truths.learned(step.graph) == known.get("trainable", known.get("learned"))


def test_every_model_is_tested() -> None:
    assert {f"savedmodel/{name}" for name in (*COUNTED, "cond", "while_from_input")} == set(truths.named("savedmodel"))


def test_the_outcome_of_a_conditional_is_a_range() -> None:
    branches = truths.truth()["savedmodel/cond"]["branches"]
    low, high = count(opened("cond").graph).range
    assert (low.macs, high.macs) == (branches["true"], branches["false"])


def test_trips_that_an_input_decides_are_assumed_unless_they_are_given() -> None:
    record, step = truths.truth()["savedmodel/while_from_input"], opened("while_from_input")
    (loop,) = step.graph.loops
    assert loop.assumed
    assert count(step.graph).total.macs == record["macs_per_trip"] * step.symbols["n"]
    given = tensortide.open(truths.folder() / "savedmodel" / "while_from_input", hyperparameters={"n": 6})
    assert not given.graph.loops[0].assumed
    assert count(given.graph).total.macs == record["macs"]


def test_cells_that_run_once_outside_their_loop_are_left_out_unless_asked_for() -> None:
    by_kind = truths.truth()["savedmodel/recurrent"]["macs_by_kind"]
    batch = {"batch": truths.batch("savedmodel/recurrent")}
    path = truths.folder() / "savedmodel" / "recurrent"
    pruned, whole = (tensortide.open(path, hyperparameters=batch, unused=unused).graph for unused in (False, True))
    assert count(whole).total.macs - count(pruned).total.macs == by_kind["probe"]
    assert any("8 MatMul: left out" in note for note in pruned.meta.assumptions)


def test_an_open_batch_is_a_symbol() -> None:
    step = tensortide.open(truths.folder() / "savedmodel" / "mlp", hyperparameters={"batch": 7})
    assert count(step.graph).total.macs == 7 * 11392
    assert any("batch is open" in note for note in opened("mlp").graph.meta.assumptions)


def test_a_training_step_has_phases() -> None:
    phases = {phase: total.macs for phase, total in count(opened("embedding_train_step").graph).by_phase.items()}
    assert (phases["forward"], phases["backward"]) == (1260, 2520)


def test_a_signature_is_chosen_by_name() -> None:
    other = opened("mlp", signature="serve")
    assert count(other.graph).total.macs == count(opened("mlp").graph).total.macs
    with pytest.raises(WorkloadError, match=r"no signature 'servr'; did you mean serve\?\nIts signatures are: serve"):
        opened("mlp", signature="servr")


def test_an_unknown_symbol_is_named_with_those_that_there_are() -> None:
    with pytest.raises(WorkloadError, match="has no symbol 'bach'; did you mean batch"):
        tensortide.open(truths.folder() / "savedmodel" / "mlp", hyperparameters={"bach": 2})


def test_names_of_nodes_are_those_of_the_layers() -> None:
    modules = [module.path for module in opened("recurrent").graph.modules]
    assert not [path for path in modules if "PartitionedCall" in path]


def test_a_cut_file_is_one_error(tmp_path: Path) -> None:
    whole = (truths.folder() / "savedmodel" / "mlp" / "saved_model.pb").read_bytes()
    (tmp_path / "saved_model.pb").write_bytes(whole[: len(whole) // 2])
    with pytest.raises((TraceError, tensortide.errors.TensortideError), match="no SavedModel, or a damaged one"):
        tensortide.open(tmp_path)
