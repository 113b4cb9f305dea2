"""Random steps like G10's traces: ours is never slower than a policy, nor on a machine that has more of anything."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tensortide.importers.g10.read import read_trace
from tensortide.plans.model import Plan
from tensortide.plans.remat.schedule import Recording, recorded
from tensortide.replays.g10 import POLICIES, G10Machine, trace_of
from tensortide.studies.planning.g10_comparison import OURS, compare_policies

MIB = 1 << 20
WORK = 200_000


@st.composite
def steps(draw: st.DrawFn) -> Recording:
    """Layers with weights, forward and backward, some of which read what an earlier layer made."""
    layers = draw(st.integers(6, 14))
    sizes = st.lists(st.integers(1, 8), min_size=2 * layers + 2, max_size=2 * layers + 2)
    nbytes = [MIB // 2] * layers + [MIB * size for size in draw(sizes)]
    cycles = draw(st.lists(st.integers(300_000, 3_000_000), min_size=2 * layers + 2, max_size=2 * layers + 2))
    skips = draw(st.lists(st.booleans(), min_size=layers, max_size=layers))
    rows: list[tuple[str, list[int], list[int]]] = [("Forward", [], [layers])]
    for layer in range(layers):
        early = [layers + layer - 2] if skips[layer] and layer > 1 else []
        rows.append(("Forward", [layers + layer, layer, *early], [layers + layer + 1]))
    gradient = 2 * layers + 1
    rows.append(("Backward", [2 * layers], [gradient]))
    for layer in reversed(range(layers)):
        rows.append(("Backward", [layers + layer, layer, gradient], [gradient + 1]))
        gradient += 1
    return _read(nbytes, layers, [(*row, cycle) for row, cycle in zip(rows, cycles, strict=True)])


def _read(nbytes: list[int], weights: int, rows: list[tuple[str, list[int], list[int], int]]) -> Recording:
    def tensor(number: int) -> str:
        lasts = int(number < weights)
        return f"tensor{number} Is weight (global)?: {lasts}, Size in byte: {nbytes[number]}, Range:0--{nbytes[number]}"

    lines: list[str] = []
    for number, (kind, inputs, outputs, cycles) in enumerate(rows):
        lines += [f"Kernel ID: {number}, Name: Layer_{kind}", f"Parent OP ID:{number}; Name:op"]
        lines += [f"Execution Time: {cycles}", "Input Tensors:", *map(tensor, inputs)]
        lines += ["Output Tensors:", *map(tensor, outputs), "_" * 68]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "kernels.config").write_text("".join(f"{line}\n" for line in lines))
        (folder / "tensors.config").write_text("".join(f"{tensor(number)}\n" for number in range(len(nbytes))))
        found = read_trace(folder)
    assert found.times is not None
    return recorded(found.graph, found.times.durations(found.graph, "trace").ns, "trace")


def machine_for(step: Recording, share: float) -> G10Machine:
    """A machine with a part of the memory that all of the step takes."""
    total = sum(int(storage.nbytes) for storage in step.graph.storages)
    return G10Machine(device_bytes=int(share * total), wire=4_000_000_000, drive=1_000_000_000)


# With less memory the wire limits every step, and the page policies win by what the event rules do not allow: kernels
# whose pages arrive late compute in no time.
@pytest.mark.slow
@given(steps(), st.sampled_from((0.5, 0.65)))
@settings(max_examples=8, deadline=None, derandomize=True)
def test_ours_is_never_slower_than_a_policy(step: Recording, share: float) -> None:
    trace, machine = trace_of(step.graph, step.durations_ns), machine_for(step, share)
    found = compare_policies(step, trace, machine, tuple(POLICIES), effort=0.2, work_limit=WORK)
    ours = found.of(OURS).step_ns
    for outcome in found.outcomes:
        if outcome.policy not in (OURS, "ideal") and outcome.step_ns is not None:
            assert ours is not None
            assert ours <= outcome.step_ns, outcome.policy


@pytest.mark.slow
@given(steps())
@settings(max_examples=4, deadline=None, derandomize=True)
@pytest.mark.parametrize(
    ("what", "factors"), [("device_bytes", (1, 1.1, 1.2, 1.4)), ("wire", (0.5, 1, 2, 4)), ("drive", (0.2, 0.5, 1, 2))]
)
def test_more_memory_or_a_faster_link_never_makes_ours_slower(
    what: str, factors: tuple[float, ...], step: Recording
) -> None:
    trace, plain = trace_of(step.graph, step.durations_ns), machine_for(step, 0.4)
    values = {name: getattr(plain, name) for name in plain.__struct_fields__}
    known: dict[str, Plan] = {}
    times: list[int] = []
    for factor in factors:
        machine = G10Machine(**{**values, what: int(factor * values[what])})
        found = compare_policies(step, trace, machine, (), effort=0.1, work_limit=WORK, known=known)
        if found.planned is not None and found.planned.plan is not None:
            known = {"the smaller machine": found.planned.plan}
            times.append(found.planned.step_ns or 0)
        assert bool(times) == (found.planned is not None)
    assert times == sorted(times, reverse=True)
