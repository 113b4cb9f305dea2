"""Verdicts: what is not known is no pass, and a failure says where it grew."""

from __future__ import annotations

from pathlib import Path

import pytest

import tensortide
from tensortide.errors import CheckError
from tensortide.measures.checks.checking import Checked
from tensortide.measures.checks.verdicts import Verdict
from tensortide.reports.sections.checks import told
from tests.measures.checks.steps import blocks, captured, checkpointed, unpriced


def only(found: Checked) -> Verdict:
    (one,) = found.verdicts
    return one


def verdict(workload: object, text: str, **given: object) -> Verdict:
    return only(tensortide.check(captured(workload), text, **given))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "outcome"),
    [
        ("parameters == 459", "holds"),
        ("parameters == 460", "fails"),
        ("parameters < 459", "fails"),
        ("parameters >= 459", "holds"),
        ("parameters > 459", "fails"),
        ("coverage == 100%", "holds"),
        ("coverage > 99.9 %", "holds"),
        ("no recomputation", "holds"),
        ("no aten.copy_ in blocks.*", "holds"),
        ("no addmm in blocks.*", "fails"),
        ("no aten.addmm in head", "fails"),
        ("no aten.addmm.default in head", "fails"),
        ("no addmm in blocs.*", "unknown"),
        ("flops in blocs.* <= 1", "unknown"),
        ("peak <= 1GiB on cuda", "unknown"),
        ("peak <= 1GiB on cpu", "holds"),
        ("time <= 1 s", "unknown"),
        ("execution_time <= 1 s", "unknown"),
        ("activation_peak <= 1GiB", "unknown"),
    ],
)
def test_an_assertion_holds_fails_or_cannot_be_told(text: str, outcome: str) -> None:
    """Three blocks of 8 x 8 + 8 twice, and a head of 8 x 3 + 3: 459 parameters."""
    found = verdict(blocks, text)
    assert found.outcome == outcome, found
    assert bool(found.reason) == (outcome == "unknown" or (outcome == "fails" and text.startswith("no ")))


def test_what_is_unknown_is_no_pass_and_says_why() -> None:
    found = tensortide.check(captured(blocks), ["time <= 1 s", "flops in blok.* <= 1", "parameters == 459"])
    assert not found.holds
    assert [one.text for one in found.failures] == ["time <= 1 s", "flops in blok.* <= 1"]
    assert "no times" in found.failures[0].reason
    assert found.failures[1].reason == "no module matches blok.* (did you mean blocks?)"


@pytest.mark.parametrize(
    ("text", "outcome"),
    [
        ("flops <= 1 TFLOP", "unknown"),  # a lower bound below the limit says nothing
        ("flops <= 1", "fails"),  # above it, the whole is above it too
        ("flops >= 1", "holds"),
        ("flops >= 1 TFLOP", "unknown"),
        ("flops == 1", "fails"),
        ("flops == 1 TFLOP", "unknown"),
        ("flops <= +1% of baseline", "unknown"),
        ("parameters == 72", "holds"),  # counted without rules
        ("coverage == 100%", "fails"),
        ("unknown_ops == 1", "holds"),
    ],
)
def test_a_total_with_an_op_without_a_rule_is_a_lower_bound(text: str, outcome: str, tmp_path: Path) -> None:
    path = tmp_path / "b.json"
    tensortide.check(captured(unpriced), "peak == baseline", baseline=path, accept=True)
    found = verdict(unpriced, text, baseline=path)
    assert found.outcome == outcome, found
    assert ("1 op has no cost rule" in found.reason) == text.startswith("flops") * (outcome != "holds")


def test_recomputation_is_found_in_the_modules_where_it_is() -> None:
    assert verdict(checkpointed, "no recomputation in second").outcome == "holds"
    found = verdict(checkpointed, "no recomputation in first.*")
    recomputed = [op for op in captured(checkpointed) if op.op.recompute]
    assert (found.outcome, found.value) == ("fails", len(recomputed))
    assert "aten.addmm.default in first.0 (steps.py:" in found.reason


def test_the_estimate_of_a_time_is_compared_and_an_interval_with_the_limit_in_it_is_said() -> None:
    graph = captured(blocks)
    far = only(tensortide.check(graph, "time(h100-sxm) <= 10 s"))
    assert (far.outcome, far.remark.count("interval")) == ("holds", 0)
    assert "the estimate is compared" in far.remark
    assert "of ops captured on cpu" in far.remark
    assert far.value is not None
    near = only(tensortide.check(graph, f"time(h100-sxm) <= {far.value + 1} ns"))
    assert near.outcome == "holds"
    assert "its 80 % interval has the limit in it" in near.remark
    short = only(tensortide.check(graph, "time(h100) <= 10 s"))
    assert "h100 is taken for H100-SXM-80GB, not H100-PCIe-80GB" in short.remark
    assert short.value == far.value
    assert only(tensortide.check(graph, "time <= 10 s", machine="h100-sxm")).value == far.value


def test_the_parts_of_the_peak_add_up_to_it() -> None:
    from tensortide.graph.model import Role
    from tensortide.graph.roles import WORKSPACE

    texts = [f"peak by {role} >= 0" for role in (*Role, WORKSPACE)]
    found = tensortide.check(captured(blocks), ["peak >= 0", *texts]).verdicts
    assert found[0].value == sum(one.value or 0 for one in found[1:]) > 0


def test_margins_are_parts_of_the_limit() -> None:
    assert verdict(blocks, "parameters <= 918").margin == 0.5
    assert verdict(blocks, "parameters <= 306").margin == -0.5
    assert verdict(blocks, "parameters >= 306").margin == 0.5
    assert verdict(blocks, "parameters <= 0").margin is None


@pytest.mark.parametrize("metric", ["flops", "macs", "bytes", "parameters", "model_size", "saved", "peak"])
def test_the_modules_that_grew_account_for_the_whole_difference(metric: str, tmp_path: Path) -> None:
    path = tmp_path / "b.json"
    before = only(
        tensortide.check(captured(blocks, second=8), f"{metric} == baseline", baseline=path, accept=True)
    ).value
    path.write_text(path.read_text().replace('"second": 8', '"second": 16'))
    found = only(tensortide.check(captured(blocks, second=16), f"{metric} <= baseline", baseline=path))
    assert found.outcome == "fails"
    assert found.growth is not None
    assert found.value is not None
    assert before is not None
    changes = [one.values(found.growth.amount).difference for one in found.growth.modules]
    assert sum(changes) == found.value - before
    if metric in ("macs", "parameters", "model_size"):
        assert {one.name for one in found.growth.modules} == {"blocks.1.0", "blocks.1.1"}
    assert changes == sorted(changes, key=abs, reverse=True)


def test_without_a_baseline_a_failure_shows_the_largest_modules() -> None:
    found = verdict(blocks, "parameters in blocks.* <= 1")
    assert found.growth is not None
    assert not found.growth.compared
    assert [(one.name, one.values("parameters").b) for one in found.growth.modules] == [
        (f"blocks.{i}.{j}", 72) for i in range(3) for j in range(2)
    ]


def test_numbers_are_limits_in_base_units() -> None:
    peak = only(tensortide.check(captured(blocks), peak=0)).value
    assert isinstance(peak, int)
    found = tensortide.check(captured(blocks), peak=peak - 1, flops=1e9, ops=10**6)
    assert [one.outcome for one in found.verdicts] == ["fails", "holds", "holds"]
    assert [one.limit for one in found.verdicts] == [peak - 1, 10**9, 10**6]


def test_a_check_needs_an_assertion() -> None:
    with pytest.raises(CheckError, match="nothing to check"):
        tensortide.check(captured(blocks))


def test_a_step_is_captured_for_the_device_or_the_machine_that_an_assertion_names() -> None:
    found = tensortide.check(blocks, "peak <= 1GiB on cuda")
    assert (found.of.device, found.holds) == ("cuda", True)
    found = tensortide.check(blocks, "time(h100-pcie) <= 1 s")
    assert (found.of.device, found.of.machine) == ("cuda", "H100-PCIe-80GB")
    assert "captured on" not in found.verdicts[0].remark


def test_the_result_shows_itself() -> None:
    found = tensortide.check(captured(blocks), ["parameters <= 1", "coverage == 100%"])
    assert "1 of 2 assertions failed" in repr(found)
    assert "parameters" in found._repr_html_()


def test_an_equality_with_a_rounded_amount_says_that_it_is_exact() -> None:
    assert told(verdict(blocks, "parameters == 460")).endswith("1 below the limit (== compares exactly: 459)")
    assert told(verdict(blocks, "parameters == 900")).endswith("below the limit")
