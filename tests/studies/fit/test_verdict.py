"""The verdict on one step: whether it fits, and what dominates its peak."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from typing import Any

import msgspec
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from tensortide import GraphBuilder, capture, timeline
from tensortide.cost import Total
from tensortide.cost.coverage import Coverage
from tensortide.graph import Graph, load
from tensortide.reports.blocks import Note
from tensortide.reports.sections.verdict import section
from tensortide.studies.fit import verdict
from tensortide.studies.fit.deciding import deciding, doubt, if_off
from tensortide.studies.fit.largest import Largest
from tensortide.studies.fit.margins import CPU, DOUBTFUL, EXACT, MEASURED, margin
from tensortide.studies.fit.verdict import COMMON, fits
from tensortide.timing.cards import of_bytes
from tensortide.timing.catalogue import device
from tensortide.units import format_bytes
from tests.conftest import ROOT
from tests.graphs import path_of


def test_three_copies_of_the_logits_dominate_gpt2_and_are_named_with_their_line() -> None:
    graph = capture("gpt2", hyperparameters={"layers": 1}, machine="H100-SXM-80GB")
    found = verdict(graph, timed=False)
    assert found.dominant is not None
    assert found.dominant.kind == "loss"
    assert found.dominant.nbytes == 3 * 8 * 1024 * 50257 * 4
    assert found.dominant.sentence.startswith(
        "three copies of the logits, f32[8192,50257] of 1.53 GiB each, at the loss"
    )
    assert found.dominant.source.startswith("training.py:")
    assert "F.cross_entropy(" in found.dominant.code


def wide(optimizer: Callable[..., Any] = torch.optim.Adam) -> Callable[[], Any]:
    net, x = nn.Linear(2000, 2000), torch.randn(1, 2000)
    update = optimizer(net.parameters())

    def step() -> None:
        net(x).sum().backward()
        update.step()
        update.zero_grad()

    return step


def test_the_state_of_the_optimizer_is_named_with_the_line_that_updates_it() -> None:
    found = verdict(capture(wide), timed=False).dominant
    assert found is not None
    assert (found.kind, found.nbytes) == ("state", 2 * (2000 * 2000 + 2000) * 4 + 2 * 4)
    assert found.sentence.startswith("optimizer state, in 6 tensors, ")
    assert found.code == "update.step()"


def deep() -> Callable[[], Any]:
    blocks = nn.Sequential(*(nn.Sequential(nn.Linear(8, 8), nn.Sigmoid()) for _ in range(6)))
    x = torch.randn(4096, 8)

    def step() -> None:
        blocks(x).sum().backward()

    return step


def test_what_repeated_modules_keep_is_one_group() -> None:
    graph = capture(deep)
    found = verdict(graph, timed=False).dominant
    assert found is not None
    assert found.kind == "kept"
    assert found.share == found.nbytes / timeline(graph).peak_bytes > 0.5


def test_temporaries_of_the_backward_pass_do_not_count_as_kept_for_it() -> None:
    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.qkv = nn.Linear(8, 24)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            q, k, v = self.qkv(x).chunk(3, -1)
            mixed: torch.Tensor = torch.softmax(q @ k.mT, -1) @ v
            return mixed

    def build() -> Callable[[], Any]:
        blocks, x = nn.Sequential(Block()), torch.randn(8, 256, 8)
        return lambda: blocks(x).sum().backward()

    graph = capture(build)
    line, scores = timeline(graph), 8 * 256 * 256 * 4
    kept = [one for one in line.alive() if one.role == "activation"]
    assert sum(one.nbytes >= scores for one in kept) == 1  # the softmax; the two gradients of its size are temporaries
    found = verdict(graph, timed=False).dominant
    assert found is not None
    assert found.kind == "activations"
    assert found.nbytes == sum(
        one.nbytes for one in line.alive() if one.role == "temporary" and one.nbytes > 4
    )  # less the loss
    assert found.sentence.startswith("temporaries of 0, in ")


def test_devices_of_every_common_size_are_judged_by_what_can_be_used() -> None:
    graph = capture(wide)
    peak = timeline(graph).peak_bytes
    found = verdict(graph)
    assert list(COMMON) == [16, 24, 40, 48, 80, 141, 192]
    for (size, name), one in zip(COMMON.items(), found.on_devices, strict=True):
        assert one.device == name
        assert 0.8 * size * 2**30 < one.usable_bytes < size * 2**30
        assert one.fits == "fits"
        assert one.step_ns is not None
        assert one.step_ns > 0
    own = verdict(graph, asked=device("T4"), card=of_bytes(peak * 9 // 10), timed=False).asked
    assert own is not None
    assert own.fits == "too large"


BYTES = st.integers(0, 40)


@given(least=BYTES, more=BYTES, usable=BYTES, spread=BYTES, known=st.booleans())
def test_a_verdict_is_sure_where_all_that_may_be_needed_agrees(
    least: int, more: int, usable: int, spread: int, known: bool
) -> None:
    """Brute force: the step needs any amount of its interval, and may use any amount of the other."""
    needed = range(least, least + more + 1) if known else range(least, 1000)
    fit = {need <= room for need in needed for room in range(usable, usable + spread + 1)}
    expected = {(True,): "fits", (False,): "too large", (False, True): "unsure"}[tuple(sorted(fit))]
    assert fits(least, least + more if known else None, usable, usable + spread) == expected


@pytest.mark.parametrize(
    ("usable", "expected"),
    [(121, "fits"), (120, "fits"), (119, "unsure"), (101, "unsure"), (100, "unsure"), (99, "too large")],
)
def test_a_step_is_unsure_from_its_tensors_to_what_the_allocator_reserves(usable: int, expected: str) -> None:
    assert fits(100, 120, usable) == expected


def coverage(covered: int = 10) -> Coverage:
    return Coverage(Total(), 10, covered, 0, 0)


def on(device: str, **meta: Any) -> Graph:
    graph = on_a_gpu() if device == "cuda:0" else GraphBuilder("step").build()
    return msgspec.structs.replace(graph, meta=msgspec.structs.replace(graph.meta, **meta))


def test_a_margin_is_that_of_measurements_and_none_of_a_step_without_doubts() -> None:
    assert margin(on("cuda:0"), coverage()) == EXACT
    for doubtful in (margin(on("cuda:0"), coverage(9)), margin(on("cuda:0", decisive=("train.py:1",)), coverage())):
        assert (doubtful.below, doubtful.above) == (DOUBTFUL.below, DOUBTFUL.above)
        assert doubtful.above is not None
        assert doubtful.below < 1 < doubtful.above
        assert "H200" in doubtful.why
    said = ("loss.item() taken as 1.0 at train.py:19; the ops of the step depend on it: ...", "more")
    assert margin(on("cuda:0", untested=said), coverage()).why.endswith(
        "its tensors may have other sizes than with loss.item() taken as 1.0 at train.py:19 (and 1 more)."
    )
    for captured_on, words in (("file", "Read from a file"), ("fake", "Captured on the CPU")):
        found = margin(on("cpu", captured_on=captured_on), coverage())
        assert found.why.startswith(words)
        assert (found.below, found.above) == (CPU.below, CPU.above)
    assert margin(on("cpu"), coverage(), on_gpu=False) == EXACT


def test_margins_enclose_every_step_that_was_measured_and_are_those_of_the_docs() -> None:
    text = (ROOT / "docs/cuda.md").read_text("utf-8")
    for one in MEASURED:
        assert CPU.above is not None
        assert DOUBTFUL.above is not None
        assert CPU.below <= Fraction(one.allocated / one.cpu_peak)
        assert Fraction(one.reserved / one.cpu_peak) <= CPU.above
        assert Fraction(one.reserved / one.predicted_reserved) <= DOUBTFUL.above
        cells = [f"{one.allocated}", f"{one.predicted_allocated}", f"{one.reserved}", f"{one.predicted_reserved}"]
        row = next(line for line in text.splitlines() if line.startswith(f"| {one.step} |"))
        assert [cell.strip() for cell in row.split("|")[2:9]][::3] == [cells[0], cells[2], f"{one.cpu_peak}"]
        assert {*cells} <= {cell.strip() for cell in row.split("|")}


@given(reserved=st.integers(0, 10**6), usable=st.integers(0, 10**6))
def test_the_most_that_may_be_reserved_is_the_most_of_which_a_step_is_sure_to_fit(reserved: int, usable: int) -> None:
    for each in (EXACT, CPU, DOUBTFUL):
        sure = fits(0, each.most_bytes(reserved), usable) == "fits"
        assert sure == (reserved <= each.sure_bytes(usable))


@pytest.mark.slow
@pytest.mark.parametrize(("name", "settings", "row"), [("bert", {"batch": 8, "seq": 128}, 3), ("vit", {"batch": 8}, 4)])
def test_peaks_of_the_measured_steps_on_the_cpu_are_those_of_captures(
    name: str, settings: dict[str, Any], row: int
) -> None:
    peak = timeline(capture(name, hyperparameters=settings)).peak_bytes
    assert round(peak / 2**20, 1) == MEASURED[row].cpu_peak


def test_what_would_decide_is_said_only_of_what_is_unsure() -> None:
    graph = on_a_gpu()
    found = verdict(graph, timed=False)
    peak, reserved = found.peak_bytes, found.reserved_bytes
    assert peak < reserved
    largest = Largest("batch", 3, 10, 4, 20, 5)
    for usable, said in ((reserved, False), (reserved - 1, True), (peak, True), (peak - 1, False)):
        ways = [*deciding(verdict(graph, card=of_bytes(usable), timed=False), largest)]
        assert bool(ways) is said
        if said:
            assert ways[0] == "--set batch=3 is sure to fit"
            assert f"print(torch.cuda.max_memory_reserved() <= {usable})" in ways[1]


def one_after_the_other() -> Callable[[], None]:
    """A block of 30 MiB is released before one of 32 MiB is taken: 62 MiB in two segments, 40 in one that grows."""

    def step() -> None:
        for size in (30, 32):
            torch.ones(size << 18)

    return step


def test_expandable_segments_are_named_where_they_reserve_less_and_said_to_decide_where_they_do() -> None:
    graph = capture(one_after_the_other, device="cuda")
    most, fewest = 62 << 20, 40 << 20
    assert verdict(graph, timed=False).reserved_bytes == most
    for usable, said in ((most, ""), (most - 1, "; it fits then"), (fewest, "; it fits then"), (fewest - 1, "MiB")):
        ways = [way for way in deciding(verdict(graph, card=of_bytes(usable), timed=False)) if "expandable" in way]
        assert len(ways) == bool(said)
        assert all(way.endswith(said) and "reserves 40.00 MiB in place of 62.00 MiB" in way for way in ways)
    own = msgspec.structs.replace(graph, meta=msgspec.structs.replace(graph.meta, allocator="cuda_expandable"))
    found = verdict(own, card=of_bytes(most - 1), timed=False)
    assert found.reserved_bytes == fewest
    assert found.asked is not None
    assert found.asked.fits == "fits"


def test_needed_is_the_most_of_the_interval_and_a_time_is_within_its_own() -> None:
    graph = on_a_gpu()
    doubtful = msgspec.structs.replace(graph, meta=msgspec.structs.replace(graph.meta, decisive=("train.py:1",)))
    for step in (graph, doubtful):
        found = verdict(step, asked=device("T4"), timed=False)
        own = found.asked
        assert own is not None
        assert own.taken_share * own.usable_bytes == pytest.approx(found.most_bytes)
        assert own.step_low_ns is not None
        assert own.step_ns is not None
        assert own.step_high_ns is not None
        assert own.step_low_ns < own.step_ns < own.step_high_ns
        headline = next(block.text for block in section(found).blocks if isinstance(block, Note))
        assert "a step takes" in headline
        assert "(80 % interval " in headline


def test_what_is_to_spare_on_a_card_of_a_size_is_up_to_what_the_largest_leaves() -> None:
    graph = on_a_gpu()
    reserved = verdict(graph, timed=False).reserved_bytes
    card = replace(of_bytes(reserved - 1), most_bytes=reserved + 2**30, of_size=True)
    found = verdict(graph, card=card, timed=False)
    headline = next(block.text for block in section(found).blocks if isinstance(block, Note))
    spare = format_bytes(card.most_bytes - found.least_bytes)
    assert headline.endswith(f"{spare} to spare to 1 B too much")


def test_a_batch_that_fits_by_less_than_predictions_were_off_says_so() -> None:
    graph = on_a_gpu()
    reserved = verdict(graph, timed=False).reserved_bytes
    assert DOUBTFUL.above is not None
    for usable, said in ((reserved, True), (math.ceil(reserved * DOUBTFUL.above), False)):
        found = verdict(graph, card=of_bytes(usable), timed=False)
        assert ("if this is off" in if_off(found, reserved)) is said
        assert bool(doubt(found)) is said


def on_a_gpu() -> Graph:
    return load(path_of("mlp_a100"))


def test_ops_of_other_vocabularies_are_named_in_full_and_a_line_without_code_has_no_colon() -> None:
    b = GraphBuilder("other")
    with b.module("body"), b.source("model.py", 12):
        b.output(b.op("jax.div", b.input("x", (1000,)), out=(2000,)))
    found = verdict(b.build()).dominant
    assert found is not None
    assert found.sentence.endswith("in body, model.py:12")
    assert "the result of jax.div" in found.sentence
