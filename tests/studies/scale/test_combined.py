"""Sequences and experts of captured steps divided together with recomputation and ZeRO, and by the closed form."""

from __future__ import annotations

import functools
from collections import Counter
from typing import Any

import pytest
from msgspec.structs import replace

from tensortide import capture
from tensortide.graph import Graph
from tensortide.graph.communication import moves_data
from tensortide.graph.model import OpView, Phase
from tensortide.parallelism import Degrees, per_rank, product_flops
from tensortide.parallelism.closed import Configuration
from tensortide.parallelism.closed.configuration import Recompute
from tensortide.recorder import resolver
from tensortide.studies.scale import Captured
from tensortide.studies.scale.recomputation import recomputed
from tensortide.timing import device
from tensortide.timing.collectives import predict_collective
from tensortide.timing.estimate import estimate
from tests.marks import some_slow
from tests.parallelism.divided import Divided
from tests.parallelism.test_numerics import TINY_GPT2, TINY_MIXTRAL
from tests.studies.scale.test_captured import A100, mixture, node, plain, step


@functools.cache
def tiny(name: str) -> Graph:
    sizes = TINY_GPT2 if name == "gpt2" else TINY_MIXTRAL
    return capture(name, hyperparameters={**sizes, "optimizer": "sgd"}, real=True)


DIVIDED: list[tuple[str, dict[str, Any], Recompute]] = [
    ("gpt2", {"context": 2}, "full"),
    ("mixtral", {"data": 4, "expert": 2, "zero": 3}, "selective"),
    ("gpt2", {"data": 2, "context": 2, "zero": 3}, "selective"),
    ("mixtral", {"data": 2, "expert": 2}, "full"),
]
"""Each way to divide and each way to recompute; the first two alone have each of both."""
OTHERS: list[tuple[str, dict[str, Any], Recompute]] = [
    *((name, degrees, "selective" if how == "full" else "full") for name, degrees, how in DIVIDED),
    ("gpt2", {"context": 2, "pipeline": 2, "zero": 1}, "full"),
    ("gpt2", {"context": 2, "pipeline": 2, "zero": 1}, "selective"),
]


@pytest.mark.parametrize(("name", "degrees", "how"), some_slow([*DIVIDED, *OTHERS], [*DIVIDED[2:], *OTHERS]))
def test_steps_that_recompute_are_divided_exactly(name: str, degrees: dict[str, Any], how: Recompute) -> None:
    """Executed, ranks compute what the whole step does, and no product more."""
    again = recomputed(tiny(name), how)
    Divided(again, **degrees).assert_equal()
    ranks = per_rank(again, Degrees(**degrees))
    each = ranks.degrees.devices // len(ranks.graphs)
    assert each * sum(map(product_flops, ranks.graphs)) == product_flops(again) > product_flops(tiny(name))


def exchanges(captured: Captured, one: Configuration) -> Counter[tuple[str, str]]:
    """Collectives of context and expert ranks by kind and pass."""
    ranks = per_rank(recomputed(captured.graph, one.recompute), one.degrees)
    found: Counter[tuple[str, str]] = Counter()
    for each in ranks.collectives:
        if each.group in ("context", "expert") and each.kind != "all_reduce":
            found[each.kind, each.phase] += each.number
    return found


@pytest.mark.parametrize(
    ("captured", "degrees", "kinds"),
    [
        (step, {"context": 2}, {"all_gather": 4}),
        pytest.param(
            step,
            {"data": 2, "context": 2, "micro_batch": 4, "zero": 3},
            {"all_gather": 4},
            marks=pytest.mark.slow,
        ),
        (mixture, {"data": 2, "expert": 2, "micro_batch": 4}, {"all_to_all": 2}),
    ],
)
def test_what_is_recomputed_is_exchanged_again(
    captured: functools._lru_cache_wrapper[Captured], degrees: dict[str, Any], kinds: dict[str, int]
) -> None:
    """Keys and values of each of 4 layers are gathered once more, tokens of 1 travel to experts and back once more."""
    own, none, full = captured(), plain(**degrees), replace(plain(**degrees), recompute="full")
    more = exchanges(own, full)
    more.subtract(exchanges(own, none))
    assert {kind: number for (kind, phase), number in more.items() if number and phase == "backward"} == kinds
    kept, again = (own.predict(one, node(one.devices)) for one in (none, full))
    part = "context" if "all_gather" in kinds else "expert"
    assert again.parts[part] > kept.parts[part] > 0
    assert again.parts["recompute"] > 0
    assert again.peak_bytes < kept.peak_bytes


PASSES = (Phase.FORWARD, Phase.BACKWARD)
LAYERS, BATCH, SEQ, HIDDEN, EXPERTS = 2, 8, 4096, 4096, 4
WIDE: dict[str, int | float | str | bool | None] = {
    "layers": LAYERS,
    "hidden": HIDDEN,
    "heads": 32,
    "seq": SEQ,
    "batch": BATCH,
    "vocab": 512,
    "dtype": "bfloat16",
    "optimizer": "sgd",
}


def computes(op: OpView) -> bool:
    return not op.is_view and not moves_data(op.name)


@functools.cache
def wide(name: str) -> Captured:
    """A step whose ops take longer than their launches."""
    own = {"positions": SEQ} if name == "gpt2" else {"experts": EXPERTS, "kv_heads": 32, "intermediate": 2 * HIDDEN}
    return Captured(capture(name, hyperparameters=WIDE | own), device(A100), batch=BATCH, resolver=resolver)


def exchange_ns(one: Configuration) -> float:
    """Exchanges of all layers of a stage for a micro-batch by the sizes of the model: keys and values gathered in both
    passes, their gradients scattered; tokens to experts and back in both passes."""
    where, layers = node(one.devices), LAYERS // one.pipeline
    found = 0.0
    if one.context > 1:
        both = 2 * one.micro_batch * SEQ * HIDDEN * 2  # keys and values of 2 bytes
        kinds = ("all_gather", "all_gather", "reduce_scatter")
        found += sum(predict_collective(kind, both, one.context, where).ns for kind in kinds)
    if one.expert > 1:
        tokens = one.micro_batch * SEQ // one.context
        slots = tokens * 5 // 8  # 1.25 x 2 experts a token / 4 experts
        nbytes = EXPERTS * slots * HIDDEN * 2
        found += 4 * predict_collective("all_to_all", nbytes, one.expert, where).ns
    return layers * found


@pytest.mark.parametrize(
    ("name", "degrees"),
    [
        ("gpt2", {"data": 2, "context": 2, "micro_batch": 2}),
        ("gpt2", {"context": 2, "pipeline": 2, "micro_batch": 1}),
        pytest.param("mixtral", {"data": 2, "context": 2, "expert": 4, "micro_batch": 2}, marks=pytest.mark.slow),
    ],
)
def test_the_replay_of_a_divided_step_agrees_with_the_closed_form_within_two_percent(
    name: str, degrees: dict[str, Any]
) -> None:
    """Time = (m + p - 1) (stage + 2 transfer) + m head, the exchange of gradients and the update aside."""
    one = plain(**degrees)
    where = node(one.devices)
    graphs = per_rank(wide(name).graph, one.degrees).graphs
    passes = []
    for graph in graphs:
        ns = estimate(graph, device(A100), resolver=resolver).ns
        own = [t for op, t in zip(graph, ns, strict=True) if op.phase in PASSES and computes(op)]
        passes.append(sum(own) + exchange_ns(one))
    stage, m, p = min(passes), one.micro_batches, one.pipeline
    sent = one.micro_batch * SEQ // one.context * HIDDEN * 2
    transfer = predict_collective("send_recv", sent, [0, one.devices // p], where).ns if p > 1 else 0.0
    closed = (m + p - 1) * (stage + 2 * transfer) + m * (max(passes) - stage)
    found = wide(name).predict(one, where)
    replayed = found.time.time_ns - sum(found.parts[name] for name in ("straggler", "data", "optimizer", "rest"))
    assert replayed == pytest.approx(closed, rel=0.02)
    inside = found.parts["context"] + found.parts["expert"]
    assert inside == pytest.approx(m * exchange_ns(one), rel=0.02)


def test_the_norm_of_all_gradients_is_no_exchange_of_tokens() -> None:
    """It is of the update, once, however many micro-batches there are."""
    for micro_batch in (4, 1):
        one = plain(data=2, expert=2, micro_batch=micro_batch)
        nbytes = 4 * (micro_batch * 32 * 5 // 8) * 64 * 2  # slots of 4 experts, 1.25 x 2 / 4 of the tokens
        there_and_back = 4 * predict_collective("all_to_all", nbytes, 2, node(2)).ns
        expected = one.micro_batches * there_and_back  # of one layer, in both passes
        assert mixture().predict(one, node(2)).parts["expert"] == pytest.approx(expected, rel=1e-6)
