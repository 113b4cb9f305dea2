"""The thirteen reference programs against counts that were derived by hand and by execution."""

from __future__ import annotations

import itertools
import json
import math
from pathlib import Path
from typing import Any

import pytest

import tensortide
from tensortide.cost import count
from tensortide.graph import Graph, Role, unrolled
from tests.reference import COMMITTED

pytestmark = pytest.mark.frameworks

FOLDER = COMMITTED / "importers"
TRUTH: dict[str, Any] = json.loads((FOLDER / "jax" / "truth.json").read_text())


def opened(name: str, **options: Any) -> Graph:
    return tensortide.open(f"{FOLDER / TRUTH[name]['path']}:build", **options).graph


def macs_by_phase(graph: Graph) -> dict[str, int]:
    return {phase: total.cost.macs for phase, total in count(graph, strict=True).by_phase.items() if total.cost.macs}


def note(graph: Graph, start: str) -> str:
    return next((text for text in graph.meta.assumptions if text.startswith(start)), "")


@pytest.mark.parametrize("name", TRUTH)
def test_products_of_every_kind_are_those_of_the_reference(name: str) -> None:
    if name in ("jax/cond_branches", "jax/while_data_dependent"):
        pytest.skip("what runs depends on data: tested below")
    truth, graph = TRUTH[name], opened(name)
    want = dict(truth["macs_by_kind"])
    found = macs_by_phase(graph)
    dead, surplus = want.pop("dead", 0), want.pop("surplus", 0)
    want.pop("outer", 0)  # contracts nothing: multiplications, no MACs
    if surplus:
        want["backward"] += surplus
        assert f"{surplus:,} MACs" in note(graph, "surplus")
    if dead:
        assert f"{dead:,} MACs" in note(graph, "dead code")
    assert found == want


@pytest.mark.parametrize("name", [name for name in TRUTH if "learned" in TRUTH[name].get("parameters", {})])
def test_parameters_are_found(name: str) -> None:
    graph = opened(name)
    named = {entry.tensor for entry in graph.named if entry.role is Role.PARAMETER}
    assert sum(math.prod(graph.tensors[i].shape) for i in named) == TRUTH[name]["parameters"]["learned"]


def test_branches_are_bounds_and_never_summed() -> None:
    truth = TRUTH["jax/cond_branches"]["branches"]
    low, high = count(opened("jax/cond_branches")).range
    assert (low.cost.macs, high.cost.macs) == (truth["true"], truth["false"])


def test_an_unknown_trip_count_is_said_and_can_be_given() -> None:
    truth = TRUTH["jax/while_data_dependent"]
    graph = opened("jax/while_data_dependent")
    assert graph.loops[0].assumed
    assert "at most 50" in note(graph, "the trip count of while")
    assert count(graph).total.cost.macs == truth["macs_outside"] + truth["macs_per_trip"]
    given = opened("jax/while_data_dependent", hyperparameters={"trips.while": 8})
    assert not given.loops[0].assumed
    assert count(given).total.cost.macs == truth["macs"]


def test_optimizer_state_and_buffers_have_their_roles() -> None:
    roles = {entry.role for entry in opened("jax/flax_nnx_mlp").named}
    assert roles == {Role.PARAMETER, Role.BUFFER, Role.OPTIMIZER_STATE, Role.INPUT}
    state = [entry for entry in opened("jax/mlp_adam").named if entry.role is Role.OPTIMIZER_STATE]
    assert len(state) == 2 * 6 + 1, "two moments of each of six arrays, and a count"


def test_reading_runs_nothing_of_the_user(tmp_path: Path) -> None:
    source = f"""
import jax, jax.numpy as jnp
def build():
    def f(x):
        jax.debug.callback(lambda: open({str(tmp_path / "ran")!r}, "w"))
        return x @ x
    return f, (jax.ShapeDtypeStruct((1 << 20, 1 << 20), jnp.float32),)
"""
    (tmp_path / "large.py").write_text(source)
    graph = tensortide.open(f"{tmp_path / 'large.py'}:build").graph
    assert count(graph).total.cost.macs == 1 << 60
    assert not (tmp_path / "ran").exists()


def resident(graph: Graph) -> int:
    """The most bytes of storages at once, counted from their births and deaths alone."""
    change = [0] * (len(graph) + 1)
    for storage in graph.storages:
        change[storage.birth or 0] += storage.nbytes
        if storage.death is not None:
            change[storage.death] -= storage.nbytes
    return max(itertools.accumulate(change))


@pytest.mark.parametrize("name", TRUTH)
def test_memory_at_last_use_is_near_what_xla_allocates(name: str) -> None:
    """Arguments to the byte. Of the rest XLA fuses chains of ops (less) and copies what loops carry (more)."""
    xla = TRUTH[name]["framework_says"]["xla_memory_analysis_cpu"]
    graph = opened(name)
    assert sum(storage.nbytes for storage in graph.storages if storage.birth is None) == xla["argument_size_in_bytes"]
    theirs = sum(xla[f"{part}_size_in_bytes"] for part in ("argument", "output", "temp"))
    assert 0.55 <= resident(unrolled(graph)) / theirs <= 1.25
