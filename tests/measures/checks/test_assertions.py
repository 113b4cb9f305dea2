"""The language of assertions: every form is read into data, and what cannot be read is refused at its column."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest

import tensortide
from tensortide.errors import CheckError
from tensortide.measures.checks.assertions import Absence, Bound, bounded, parse
from tensortide.measures.registry import ALIASES, default_registry
from tests.measures.checks.steps import blocks, captured

REGISTRY = default_registry()


def bound(text: str) -> Bound:
    found = parse(text, REGISTRY)
    assert isinstance(found, Bound)
    return found


@pytest.mark.parametrize(
    ("text", "key", "relation", "amount"),
    [
        ("peak <= 24GiB on cuda", "step_peak on cuda", "<=", 24 << 30),
        ("peak<=24 GB", "step_peak", "<=", 24 * 10**9),
        ("peak_memory < 24GB", "step_peak", "<", 24 * 10**9),
        ("Peak memory <= 24GiB on cuda", "step_peak on cuda", "<=", 24 << 30),
        ("memory <= 24GiB", "step_peak", "<=", 24 << 30),
        ("FLOPs in blocks.* <= 2 TFLOP", "flops in blocks.*", "<=", 2 * 10**12),
        ("step < 2s", "step_time", "<", 2 * 10**9),
        ("step time(h100) < 2 s", "step_time(h100)", "<", 2 * 10**9),
        ("peak by activation <= 8GiB", "step_peak_activation", "<=", 8 << 30),
        ("parameters == 11_689_512", "total_params", "==", 11_689_512),
        ("parameters = 1.3B", "total_params", "==", 1_300_000_000),
        ("flops in blocks.* <= 2 TFLOP", "flops in blocks.*", "<=", 2 * 10**12),
        ("flops < 2e12", "flops", "<", 2 * 10**12),
        ("macs <= 1.5 GMACs", "macs", "<=", 1_500_000_000),
        ("time(8xa100-sxm-80gb) <= 210 ms", "step_time(8xa100-sxm-80gb)", "<=", 210_000_000),
        ("step_time( h100 ) <= 1.5s", "step_time(h100)", "<=", 1_500_000_000),
        ("time < 0", "step_time", "<", 0),
        ("ops <= 12k", "ops", "<=", 12_000),
        ("intensity >= 12.5", "intensity", ">=", Fraction(25, 2)),
        ("coverage == 100%", "coverage", "==", 1),
        ("coverage >= 99.9 %", "coverage", ">=", Fraction(999, 1000)),
        ("utilization(h100) > 0.4", "utilization(h100)", ">", Fraction(2, 5)),
    ],
)
def test_a_bound_is_read(text: str, key: str, relation: str, amount: Fraction) -> None:
    found = bound(text)
    assert (found.quantity.key, found.relation, found.limit.of(None)) == (key, relation, amount)
    assert not found.relative
    assert found.text == text


@pytest.mark.parametrize(
    ("limit", "of_1000"),
    [
        ("baseline", 1000),
        ("+1% of baseline", 1010),
        ("-2.5 % of baseline", 975),
        ("80% of  baseline", 800),
        ("80 % of the baseline", 800),
        ("+2% baseline", 1020),
        ("baseline +2%", 1020),
        ("baseline - 2 %", 980),
        ("1.2x baseline", 1200),
        ("1.2 x the baseline", 1200),
        ("1.5 times baseline", 1500),
        ("baseline * 1.2", 1200),
    ],
)
def test_a_limit_may_be_a_part_of_the_baseline(limit: str, of_1000: int) -> None:
    found = bound(f"flops <= {limit}")
    assert found.relative
    assert found.limit.of(1000) == of_1000


def test_ops_and_recomputation_are_forbidden_by_pattern() -> None:
    assert parse("no recomputation", REGISTRY) == Absence("no recomputation")
    assert parse(" no recomputation in blocks.* ", REGISTRY) == Absence(
        "no recomputation in blocks.*", modules="blocks.*"
    )
    text = "no aten.copy_ in encoder.*"
    assert parse(text, REGISTRY) == Absence(text, "aten.copy_", "encoder.*")


@pytest.mark.parametrize(
    "name",
    [
        *(
            "copy_",
            "aten.copy_",
            "aten::copy_",
            "aten.copy_.default",
            "aten.add_.Tensor",
            "addmm",
            "aten.*mm",
            "*norm*",
        ),
        *(
            "aten._foreach_add_.List",
            "_scaled_dot_product_*",
            "aten.copy?",
            "mylib.mix",
            "mylib.*",
            "mylib.mix.default",
        ),
        *("c10d.allreduce_", "c10d.of_no_rule"),
    ],
)
def test_an_op_may_be_any_that_has_a_rule_or_is_of_a_library(name: str) -> None:
    found = parse(f"no {name}", REGISTRY)
    assert isinstance(found, Absence)
    assert found.ops == name.replace("::", ".")


@pytest.mark.parametrize(
    ("text", "column", "words"),
    [
        ("", 1, "expected an assertion"),
        ("peek <= 24GiB", 1, "no metric 'peek': did you mean peak?"),
        ("  flop <= 1", 3, "did you mean flops?"),
        ("xyzzy <= 1", 1, "there are flops, macs"),
        ("peak", 5, "expected a relation"),
        ("peak 24GiB", 11, "expected a relation"),
        ("peak <=", 8, "expected a limit"),
        ("peak <= 1 <= 2", 11, "one relation"),
        ("<= 24GiB", 1, "expected the name of a metric"),
        ("peak <= 24FLOP", 9, "expected bytes, as 24GiB"),
        ("peak <= -1GiB", 9, "expected bytes"),
        ("flops <= 24GiB", 10, "expected FLOPs, as 2 TFLOP"),
        ("macs <= 2 GFLOP", 9, "expected MACs"),
        ("time(h100) <= 210", 15, "expected a time, as 210 ms"),
        ("parameters <= 25m", 15, "expected a number, as 25M"),
        ("coverage >= 98 percent", 13, "expected a share"),
        ("flops <= +1%", 10, "a part of the baseline is written flops <= +1% of baseline"),
        ("peak memory <= 80 %", 16, "a part of the baseline is written peak memory <= 80 % of baseline"),
        ("peak == base + 2%", 9, "a part of the baseline is written peak == +2% of baseline"),
        ("flops <= 1% of basline", 10, "expected FLOPs"),
        ("flops <= +1..2% of baseline", 10, "expected a part of the baseline, as +1% of baseline, not '+1..2%'"),
        ("flops(h100) <= 1", 6, "flops does not depend on a machine"),
        ("time() <= 1 s", 6, "expected a machine"),
        ("time(h9000) <= 1 s", 6, "no device is called 'h9000'"),
        ("time(0xh100) <= 1 s", 6, "at least one device"),
        ("time(local) <= 1 s", 6, "the same wherever it runs"),
        ("time(none.json) <= 1 s", 6, "none.json"),
        ("flops at blocks <= 1", 7, "expected in MODULES, by ROLE or a relation, not 'at'"),
        ("flops in <= 1", 9, "expected modules"),
        ("flops in a in b <= 1", 12, "in is given twice"),
        ("coverage in blocks.* >= 1", 13, "coverage is not known by module"),
        ("flops by activation <= 1", 10, "flops is not known by role"),
        ("peak by activations <= 1", 9, "did you mean activation?"),
        ("flops <= 1 on cuda", 12, "on DEVICE goes with peak alone"),
        ("peak in blocks.* <= 1 on cuda", 23, "on DEVICE goes with peak alone"),
        ("peak <= 1GiB on", 16, "expected a device"),
        ("no", 3, "expected recomputation"),
        ("no recomputation blocks.*", 18, "expected in MODULES"),
        ("no recomputation in", 20, "expected modules"),
        ("no recomputation in a b", 23, "expected the end, not 'b'"),
        ("no recomputaton in blocks.*", 4, "there is no op 'recomputaton': did you mean recomputation?"),
        ("no aten.adddmm", 4, "there is no op 'aten.adddmm': did you mean aten.addmm?"),
        ("no copyy_", 4, "did you mean copy_?"),
        ("no aten.qqqq*", 4, "there is no op 'aten.qqqq*'"),
        ("no *.qqqq", 4, "there is no op '*.qqqq'"),
        ("no xyzzy", 4, "an op of a library is written NAMESPACE.OP"),
        ("no addmm.default", 4, "did you mean aten.addmm.default?"),
    ],
)
def test_an_error_names_the_column_and_what_was_expected(text: str, column: int, words: str) -> None:
    with pytest.raises(CheckError) as caught:
        parse(text, REGISTRY)
    assert str(caught.value).startswith(f"column {column} of {text!r}: ")
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("name", "limit", "text"),
    [
        ("peak", "2GiB", "peak <= 2GiB"),
        ("peak", "2GiB on cuda", "peak <= 2GiB on cuda"),
        ("coverage", "100%", "coverage >= 100%"),
        ("flops", "+1% of baseline", "flops <= +1% of baseline"),
        ("parameters", "== baseline", "parameters == baseline"),
        ("peak", 2048, "peak <= 2048 B"),
        ("flops", 10**9, "flops <= 1000000000"),
        ("flops", 1e9, "flops <= 1000000000"),
        ("flops", 1e30, f"flops <= {int(1e30)}"),
        ("time", 5e6, "time <= 5000000 ns"),
        ("coverage", 0.98, "coverage >= 0.98"),
    ],
)
def test_a_keyword_is_the_assertion_that_its_metric_suggests(name: str, limit: str | float, text: str) -> None:
    assert bounded(name, limit, REGISTRY) == text
    parse(text, REGISTRY)


@pytest.mark.parametrize("limit", [None, True, float("inf"), float("nan"), ["2GiB"], b"2GiB", 1j])
def test_what_is_neither_text_nor_number_is_no_limit(limit: Any) -> None:
    with pytest.raises(CheckError, match=r"^peak takes a text, as '\+1% of baseline', or a number in base units, not "):
        bounded("peak", limit, REGISTRY)
    with pytest.raises(CheckError, match=r"^an assertion is a text"):
        parse(limit, REGISTRY)


def test_other_names_are_of_metrics_and_hide_none() -> None:
    assert set(ALIASES.values()) <= set(REGISTRY)
    assert set(ALIASES).isdisjoint(REGISTRY)


@pytest.mark.parametrize(
    ("key", "metric"),
    [
        *[("peak_bytes", "step_peak"), ("step_peak_bytes", "step_peak"), ("saved_bytes", "saved_activations")],
        *[("accessed_bytes", "bytes"), ("parameter_bytes", "model_size"), ("model_size_bytes", "model_size")],
        *[("step_ns", "step_time"), ("time_ns", "step_time"), ("intensity_flops_per_byte", "intensity")],
    ],
)
def test_keys_of_data_are_understood(key: str, metric: str) -> None:
    assert bound(f"{key} <= baseline").quantity.metric.name == metric


@pytest.mark.parametrize(
    "text",
    [
        "peak <= 1e999GiB",
        "peak <= -1e999GiB",
        "peak <= 1e308EiB",
        "peak <= nan",
        "peak <= inf",
        "flops <= 1e400",
        "flops <= -1e400",
        "flops <= 1e308T",
        "coverage <= 1e999%",
        "time(h100-sxm) <= 1e999 h",
        f"peak <= {'9' * 5000}GiB",
        f"flops <= {'9' * 5000}",
        f"flops <= 0.{'9' * 5000}",
        f"flops <= +{'9' * 400}% of baseline",
        f"flops <= +{'9' * 5000}% of baseline",
        f"time({'9' * 5000}xh100-sxm) <= 1 s",
    ],
    ids=lambda text: f"{text[:24]} of {len(text)}",
)
def test_an_amount_beyond_all_measure_is_refused_in_one_line(text: str) -> None:
    with pytest.raises(CheckError) as caught:
        parse(text, REGISTRY)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 1000


def test_the_largest_amounts_are_compared_and_shown() -> None:
    found = tensortide.check(
        captured(blocks), ["flops <= 1e30", "peak <= 1e30 B", "coverage >= -1e30", "flops >= 1e-300"]
    )
    assert [one.outcome for one in found.verdicts] == ["holds"] * 4
    assert repr(found)
    for number in (10**31, 10**5000, -(10**400), 1e300, float("inf")):
        with pytest.raises(CheckError):
            tensortide.check(captured(blocks), flops=number)
