"""What a person who chooses between machines is told: the verdict, what bounds the step, and rates."""

from __future__ import annotations

import functools
import io
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from rich.console import Console
from torch.utils.checkpoint import checkpoint

import tensortide
from tensortide.graph import Graph
from tensortide.reports.blocks import Note, Section
from tensortide.reports.render.terminal import render_terminal
from tensortide.reports.sections import Step
from tensortide.reports.sections.machines import section
from tensortide.timelines.machines import step_on
from tensortide.timelines.ratio import work_ratio
from tensortide.timing.collectives.nodes import nodes_called

Workload = Callable[..., Callable[[], Any]]


def work(batch: int = 3, side: int = 8192, length: int = 1 << 27) -> Callable[[], Any]:
    """Products, which arithmetic bounds, a sum, which bytes bound, and the gradients of two weights."""
    weight, other = (torch.empty(side, side, requires_grad=True) for _ in range(2))
    vector = torch.empty(length)
    rows = torch.empty(side, side)

    def step() -> None:
        (rows @ weight @ other).sum().backward()
        vector.add(1)
        weight.grad = other.grad = None

    return step


@pytest.fixture(scope="module")
def graph() -> Graph:
    return tensortide.capture(work)


def shown(graph: Graph, *names: str) -> Section:
    return section(Step(graph), [step_on(graph, nodes_called(name)) for name in names])


def verdict(found: Section) -> str:
    (text,) = (block.text for block in found.blocks if isinstance(block, Note) and block.kind == "verdict")
    return text


@pytest.mark.parametrize(
    ("best", "other", "settled"),
    [
        ("h100-sxm", "t4", "it is the faster one"),
        ("h200", "h100-sxm", "as good in every figure, it is not slower"),
        ("l40s", "a40", ""),
        ("8xh100-sxm", "4xh100-sxm", "it is the faster one"),
        ("2xh200", "2xh100-sxm", "which one is faster is not settled"),
    ],
)
@pytest.mark.parametrize("turned", [False, True])
def test_the_verdict_names_the_machine_that_does_more_and_whether_that_is_settled(
    best: str, other: str, settled: str, turned: bool, graph: Graph
) -> None:
    first, second = (step_on(graph, nodes_called(name)) for name in (best, other))
    rates = [one.nodes.size / one.step_time.time_ns for one in (first, second)]
    assert rates[0] > rates[1]
    said = verdict(shown(graph, *((other, best) if turned else (best, other))))
    ratio = f"{first.nodes} does {rates[0] / rates[1]:.2f} times the work of {second.nodes}"
    assert said.startswith(f"{ratio} in the same time, ")
    assert settled in said
    found = work_ratio(first, second)
    assert found.value == pytest.approx(rates[0] / rates[1])
    assert found.low < found.value < found.high
    assert ("is the faster one" in said) is (found.low > 1)


def test_a_machine_with_ops_of_unknown_time_is_never_ranked(graph: Graph) -> None:
    """The TPU has no rate of fp32 in the catalogue, so its products would count with their bytes alone."""
    assert step_on(graph, nodes_called("tpu v4")).step_time.unknown
    found = shown(graph, "h100-sxm", "tpu v4")
    assert verdict(found).startswith("Not ranked, for ops of unknown time there: TPU v4 (per chip)")
    table = found.table("machines")
    assert table["step_high_ns"][1] is None  # nobody knows how long it takes at most
    assert isinstance(table["step_high_ns"][0], int)
    assert str(table["step_interval_text"][1]).endswith(" or more")
    ranked = shown(graph, "h100-sxm", "tpu v4", "t4")
    said = [block.text for block in ranked.blocks if isinstance(block, Note) and block.kind == "verdict"]
    assert said[1].startswith("H100-SXM-80GB does ")
    assert "TPU" not in said[1]


def test_every_machine_behind_the_second_has_its_place(graph: Graph) -> None:
    said = verdict(shown(graph, "t4", "h100-sxm", "a100-sxm-80gb", "l4"))
    first = step_on(graph, nodes_called("h100-sxm"))
    for name in ("t4", "l4"):
        ratio = work_ratio(first, step_on(graph, nodes_called(name)))
        assert f"That of {name.upper()}: {ratio.value:.2f} times" in said


def test_fp64_on_a_consumer_card_takes_what_its_few_units_give(graph: Graph) -> None:
    def product(batch: int = 4096) -> Callable[[], Any]:
        rows = torch.empty(batch, batch, dtype=torch.float64)
        return lambda: rows @ rows

    step = step_on(tensortide.capture(product), nodes_called("rtx 4090"))
    assert step.step_time.time_ns > 2 * 4096**3 / (2 * 2 * 128 * 2.52)  # two units of two FLOPs in each of 128 SMs
    said = verdict(shown(tensortide.capture(product), "rtx 4090", "h100-sxm"))
    assert said.startswith("H100-SXM-80GB does ")


@pytest.mark.parametrize(("machine", "fits"), [("t4", False), ("h100-sxm", True)])
def test_a_step_that_does_not_fit_is_warned_of(machine: str, fits: bool) -> None:
    def large(batch: int = 1) -> Callable[[], Any]:
        rows = torch.empty(batch << 32)  # 16 GiB
        return lambda: rows.add_(1)

    found = shown(tensortide.capture(large), machine)
    warnings = [block.text for block in found.blocks if isinstance(block, Note) and block.kind == "warning"]
    assert warnings == (
        [] if fits else ["T4: the step does not fit: it needs 16.00 GiB, the device has 14.07 GiB. See tensortide fit."]
    )


def test_shares_are_of_what_bounds_the_ops(graph: Graph) -> None:
    one = step_on(graph, nodes_called("h100-sxm"))
    bounds = shown(graph, "h100-sxm").table("bounds")
    product = sum(ns for op, ns in zip(graph, one.durations.ns, strict=True) if op.name.startswith("aten.mm"))
    moving = sum(ns for op, ns in zip(graph, one.durations.ns, strict=True) if op.name.startswith("aten.add"))
    whole = one.step_time.time_ns
    arithmetic, bytes_ = bounds["bound_compute_share"][0], bounds["bound_memory_share"][0]
    assert isinstance(arithmetic, float)
    assert isinstance(bytes_, float)
    assert arithmetic == pytest.approx(product / whole)
    assert arithmetic > 2 * bytes_ > bytes_ >= moving / whole > 0.003


def test_rates_count_the_samples_of_all_devices_and_what_is_exposed_is_part_of_the_step(graph: Graph) -> None:
    one = step_on(graph, nodes_called("4xh100-sxm"))
    found = shown(graph, "4xh100-sxm")
    parallel = found.table("data_parallel")
    assert parallel["samples_per_s_and_device"][0] == pytest.approx(3e9 / one.step_time.time_ns, rel=1e-3)
    assert parallel["samples_per_s"][0] == pytest.approx(12e9 / one.step_time.time_ns, rel=1e-3)
    assert parallel["samples_per_s_low"][0] == pytest.approx(12e9 / one.step_time.high_ns, rel=1e-3)
    assert parallel["samples_per_s_and_device_high"][0] == pytest.approx(3e9 / one.step_time.low_ns, rel=1e-3)
    assert 0 < one.exchange.exposed_ns < 0.9 * one.exchange.time.time_ns  # the first gradient is hidden
    assert one.step_time.time_ns == pytest.approx(one.line.estimate.time_ns + one.exchange.exposed_ns, rel=1e-6)
    assert found.table("bounds")["exposed_share"][0] == pytest.approx(one.exchange.exposed_ns / one.step_time.time_ns)
    assert found.table("machines")["memory_used_share"][0] == pytest.approx(
        Step(graph).eager.peak_bytes / (one.nodes.device.usable_bytes or 0)
    )


def recomputed(plain: bool = False) -> Callable[[], Any]:
    """A layer, whose products a checkpoint computes twice unless it is ``plain``."""
    layer, rows = torch.nn.Linear(64, 64), torch.ones(8, 64, requires_grad=True)

    def step() -> None:
        found = layer(rows).relu() if plain else checkpoint(lambda x: layer(x).relu(), rows, use_reentrant=False)
        found.sum().backward()

    return step


def attention(causal: bool = False) -> Callable[[], Any]:
    """Attention and nothing else."""
    query = torch.ones(2, 4, 64, 32)
    return lambda: F.scaled_dot_product_attention(query, query, query, is_causal=causal)


def peak_ns(workload: Workload, device: str = "h100-sxm", **settings: bool) -> float:
    return step_on(tensortide.capture(workload, hyperparameters=settings), nodes_called(device)).peak_ns


def test_model_flops_leave_out_what_is_recomputed_and_the_half_that_a_causal_mask_hides() -> None:
    products = 3 * 2 * 8 * 64 * 64  # forward, and the gradients of rows and weight
    assert peak_ns(recomputed) == peak_ns(recomputed, plain=True) == pytest.approx(products / 67e3)
    scores = 2 * (2 * 4 * 64 * 64 * 32) * 2  # queries by keys, and weights by values
    assert peak_ns(attention) == pytest.approx(scores / 67e3)
    assert peak_ns(attention, causal=True) == pytest.approx(scores * 65 / 128 / 67e3)


def test_utilization_of_a_peak_that_nobody_knows_is_not_known(graph: Graph) -> None:
    assert step_on(graph, nodes_called("h100-sxm")).mfu_share is not None
    assert step_on(graph, nodes_called("tpu v4")).mfu_share is None  # no rate of fp32 in the catalogue


@pytest.mark.parametrize(
    ("machine", "dtype", "said"),
    [("t4", torch.bfloat16, True), ("t4", torch.float16, False), ("l4", torch.bfloat16, False)],
)
def test_products_in_a_dtype_that_the_device_has_no_units_for_are_said_to_run_as_fp32(
    machine: str, dtype: torch.dtype, said: bool
) -> None:
    def product(batch: int = 4096) -> Callable[[], Any]:
        rows = torch.empty(batch, batch, dtype=dtype)
        return lambda: rows @ rows

    found = shown(tensortide.capture(product, machine=nodes_called(machine).device.name), machine)
    name = str(dtype).removeprefix("torch.")
    text = f"{machine.upper()} has no units for {name}: its products are taken at the rate of float32"
    assert any(getattr(block, "text", "") == text for block in found.blocks) is said


@functools.cache
def gpt2() -> Graph:
    return tensortide.capture("gpt2", hyperparameters={"layers": 1, "batch": 2}, machine="T4")


@pytest.mark.parametrize(("width", "parts"), [(80, 2), (120, 1)])
def test_rates_stand_beside_their_intervals_and_names_do_not_split_tables(width: int, parts: int) -> None:
    graph = gpt2()
    file = io.StringIO()
    found = shown(graph, "8xa100-sxm-80gb", "4xh100-sxm", "t4")
    render_terminal(found.document("gpt2"), Console(file=file, width=width, no_color=True, highlight=False))
    text = file.getvalue()
    assert max(map(len, text.splitlines())) <= width
    rates = next(line for line in text.splitlines() if "samples/s, all" in line)
    assert rates.endswith("80 % interval")
    assert text.count("samples/s, all") == 1
    assert text.partition("Data parallel")[2].partition("By phase")[0].count("Machine ") == parts
    assert (
        text.partition("By op")[2].partition("more rows")[0].count("4 x H100-SXM-80GB") == 1
    )  # one table, however long the names
    assert sum("Basis" in line and "80 % interval" in line for line in text.splitlines()) == 1


def test_the_root_has_what_all_modules_have() -> None:
    graph = gpt2()
    table = shown(graph, "l4", "t4").table("machine_modules")
    times = dict(zip(table["module"], table["time_0_ns"], strict=True))
    inside = [i for i, op in enumerate(graph.ops) if graph.module_path(op.module) != "(outside)"]
    one = step_on(graph, nodes_called("l4"))
    assert times["(root)"] == pytest.approx(sum(one.durations.ns[i] for i in inside), abs=len(inside))
