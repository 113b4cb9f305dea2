"""Machines to choose between: how they are named, what data-parallel training adds, and what is reported of them."""

from __future__ import annotations

import pytest

import tensortide
from tensortide.errors import TensortideError
from tensortide.graph import Graph, Phase, Role
from tensortide.reports.sections import Step
from tensortide.reports.sections.machines import section
from tensortide.timelines.data_parallel import gradient_exchange, with_exchange
from tensortide.timelines.machines import MachineStep, step_on
from tensortide.timelines.step import step_timeline
from tensortide.timing import device, estimate
from tensortide.timing.collectives import collective
from tensortide.timing.collectives.nodes import nodes_called
from tensortide.timing.estimates import Provenance
from tensortide.timing.rates import matrix_tflops
from tests.graphs import Builder


@pytest.fixture(scope="module")
def graph() -> Graph:
    return tensortide.capture("gpt2", hyperparameters={"layers": 2}, machine="A100-SXM-80GB")


@pytest.fixture(scope="module")
def steps(graph: Graph) -> list[MachineStep]:
    return [step_on(graph, nodes_called(text)) for text in ("8xa100-sxm4-80gb", "4xh100-sxm", "h100-pcie")]


@pytest.mark.parametrize(
    ("text", "name", "per_node", "nodes"),
    [
        ("8xa100-sxm4-80gb", "A100-SXM-80GB", 8, 1),
        ("4XH100-SXM", "H100-SXM-80GB", 4, 1),
        ("16xh100-sxm", "H100-SXM-80GB", 8, 2),
        ("2x4xh100-sxm", "H100-SXM-80GB", 4, 2),
        ("L4", "L4", 1, 1),
        ("1xL4", "L4", 1, 1),
    ],
)
def test_a_number_of_devices_stands_before_the_name(text: str, name: str, per_node: int, nodes: int) -> None:
    found = nodes_called(text)
    assert (found.device.name, found.devices_per_node, found.count) == (name, per_node, nodes)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("0xh100-sxm", "at least one device"),
        ("12xh100-sxm", "12 devices fill no nodes of 8: write NODESxDEVICESxh100-sxm"),
        ("4xh1000", "no device is called 'h1000'"),
        ("8xv100", "is ambiguous: it may be V100-SXM-32GB"),
    ],
)
def test_what_is_no_machine_is_one_clear_error(text: str, message: str) -> None:
    with pytest.raises(TensortideError, match=message):
        nodes_called(text)


def test_the_gradients_that_are_exchanged_are_those_of_all_parameters(graph: Graph, steps: list[MachineStep]) -> None:
    parameters = sum(int(s.nbytes) for s in graph.storages if s.role is Role.PARAMETER)
    assert steps[0].exchange.nbytes == pytest.approx(parameters, rel=0.01)
    assert steps[2].exchange.nbytes == 0


def test_overlap_hides_all_but_what_ends_after_the_backward_pass(graph: Graph) -> None:
    where = nodes_called("8xa100-sxm-80gb")
    line = step_timeline(graph, estimate(graph, where.device), where.device)
    whole = gradient_exchange(line, where, 1 << 40)
    assert whole.buckets == 1
    assert whole.exposed_ns == pytest.approx(whole.time.time_ns, abs=1)  # one bucket waits for the last gradient
    assert whole.time.time_ns == collective("all_reduce", whole.nbytes, 8, where).time_ns
    parts = gradient_exchange(line, where)
    assert parts.nbytes == whole.nbytes
    assert parts.buckets > 1
    assert 0 < parts.exposed_ns < parts.time.time_ns


def test_without_overlap_the_step_is_that_of_one_device_and_the_whole_exchange(steps: list[MachineStep]) -> None:
    for one in steps:
        alone, apart, together = one.line.estimate, one.step_time_apart, one.step_time
        assert apart.time_ns == pytest.approx(alone.time_ns + one.exchange.time.time_ns)
        assert alone.time_ns <= together.time_ns <= apart.time_ns
        assert together.low_ns < together.time_ns < together.high_ns


@pytest.mark.parametrize("text", ["8xt4", "8xl4", "8xrtx-4090", "16xh100-sxm"])
@pytest.mark.parametrize("overlap", [True, False])
def test_the_interval_of_a_step_has_what_it_is_at_both_ends_of_its_exchange(
    text: str, overlap: bool, graph: Graph
) -> None:
    one = step_on(graph, nodes_called(text))
    step, alone, exchange = one.step_time if overlap else one.step_time_apart, one.line.estimate, one.exchange
    hidden = exchange.hidden_ns if overlap else 0
    assert step.time_ns == pytest.approx(alone.time_ns + max(0, exchange.time.time_ns - hidden), abs=2)
    assert exchange.time.high_ns < step.high_ns < alone.high_ns + exchange.time.high_ns  # longer than its collectives
    assert max(exchange.time.low_ns, alone.low_ns * 0.999) < step.low_ns < step.time_ns


def test_model_flops_utilization_is_the_time_at_peak_over_the_step(graph: Graph, steps: list[MachineStep]) -> None:
    from tensortide.cost import count

    products = sum(2 * (c.cost.active_macs or 0) for c in count(graph).costs if c.cost is not None)
    for one in steps:
        rate = matrix_tflops(one.nodes.device, "float32")
        assert rate is not None
        assert one.mfu_share == pytest.approx(products / (rate * 1e3) / one.step_time.time_ns, rel=1e-6)


def test_the_section_states_time_interval_bounds_and_rates_of_each(graph: Graph, steps: list[MachineStep]) -> None:
    found = section(Step(graph), steps)
    table, bounds, parallel = (found.table(key) for key in ("machines", "bounds", "data_parallel"))
    assert table["machine"] == ("8 x A100-SXM-80GB", "4 x H100-SXM-80GB", "H100-PCIe-80GB")
    for low, time, high in zip(table["step_low_ns"], table["step_ns"], table["step_high_ns"], strict=True):
        assert isinstance(low, int)
        assert isinstance(time, int)
        assert isinstance(high, int)
        assert low < time < high
    assert set(table["provenance"]) <= {str(kind) for kind in Provenance}
    for row in range(3):
        bounded = [f"bound_{bound}_share" for bound in ("compute", "memory", "launch", "views")]
        shares = [bounds[key][row] for key in (*bounded, "host_share", "exposed_share")]
        assert sum(share for share in shares if isinstance(share, float)) == pytest.approx(1.0, abs=0.01)
    batch = graph.meta.hyperparameters["batch"]
    assert isinstance(batch, int)
    assert parallel["samples_per_s"][0] == pytest.approx(8 * batch * 1e9 / steps[0].step_time.time_ns, rel=1e-3)
    phases = found.table("machine_phases")
    for i, one in enumerate(steps):
        assert sum(ns for ns in phases[f"time_{i}_ns"] if isinstance(ns, int)) == pytest.approx(
            sum(one.durations.ns), abs=9
        )
    words = " ".join(str(getattr(block, "text", "")) for block in found.blocks)
    assert "Not modelled" in words
    assert "80 % interval" in words


def test_a_step_with_collectives_of_its_own_exchanges_these_and_no_more() -> None:
    builder = Builder()
    given = builder.storage(2**26, Role.PARAMETER, device="cuda:0")
    gradient = builder.storage(2**26, Role.GRADIENT, birth=0, device="cuda:0")
    builder.op([given], [gradient], name="aten.relu.default", phase=Phase.BACKWARD)
    builder.op([gradient], [], mutated=(0,), name="c10d.allreduce_.default", phase=Phase.BACKWARD)
    builder.op([gradient], [builder.storage(2**27, birth=2, device="cuda:0")], name="odd.odd.default")
    graph, where = builder.graph(), nodes_called("8xa100-sxm-80gb")
    one = step_on(graph, where)
    expected = collective("all_reduce", 2**26, 8, where).time_ns
    assert one.exchange.time.time_ns == expected
    assert one.exchange.exposed_ns == round(expected)
    assert one.step_time.time_ns == pytest.approx(one.line.estimate.time_ns + expected, abs=1)
    assert one.durations.ns[1] == round(expected)
    assert not one.line.clocks.device[1]
    events, runs = with_exchange(one.line, one.exchange)
    ends, starts = events.end_ns[events.lane == 0].tolist(), events.start_ns[events.lane == 0].tolist()
    assert runs == ((ends[0], ends[0] + round(expected)),)  # after the gradient, before what comes next
    assert starts[2] == runs[0][1]
    text = " ".join(str(getattr(block, "text", "")) for block in section(Step(graph), [one]).blocks)
    assert "none is hidden" in text


def test_a_device_is_faster_than_one_with_less_of_everything(graph: Graph) -> None:
    fast, slow = device("H100-SXM-80GB"), device("A100-SXM-40GB")
    times = [step_on(graph, nodes_called(one.name)).step_time.time_ns for one in (fast, slow)]
    assert times[0] < times[1]


@pytest.mark.parametrize(
    ("better", "lesser", "said"),
    [
        ("H200-SXM-141GB", "H100-SXM-80GB", "as good in every figure, it is not slower"),
        ("H200-SXM-141GB", "A40", "it is the faster one"),
        ("2xh200-sxm-141gb", "2xh100-sxm-80gb", "which one is faster is not settled"),
    ],
)
def test_a_device_as_good_in_every_figure_is_said_not_to_be_slower(
    graph: Graph, better: str, lesser: str, said: str
) -> None:
    found = section(Step(graph), [step_on(graph, nodes_called(name)) for name in (better, lesser)])
    verdict = str(getattr(found.blocks[0], "text", ""))
    assert said in verdict
    assert ("not slower" in verdict) == (said == "as good in every figure, it is not slower")


def test_the_optimizer_starts_when_the_last_gradient_has_arrived(graph: Graph) -> None:
    one = step_on(graph, nodes_called("8xa100-sxm-80gb"))
    events, runs = with_exchange(one.line, one.exchange)
    device = events.lane == 0
    starts = dict(zip(events.index[device].tolist(), events.start_ns[device].tolist(), strict=True))
    arrived = max(end for _, end in runs)
    optimizer = [starts[i] for i, op in enumerate(graph.ops) if op.phase is Phase.OPTIMIZER]
    assert optimizer
    assert min(optimizer) >= arrived > 0
    assert int(events.end_ns.max()) == pytest.approx(one.step_time.time_ns, abs=2)
    alone = step_on(graph, nodes_called("a100-sxm-80gb"))
    assert with_exchange(alone.line, alone.exchange)[1] == ()
    assert (with_exchange(alone.line, alone.exchange)[0].start_ns == alone.line.events.start_ns).all()
