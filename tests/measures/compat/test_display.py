"""Tables of deeplite-profiler: rows, comparatives, and where they are printed."""

from __future__ import annotations

import io
import logging
from typing import Any

import pytest

from tensortide.measures import deeplite
from tensortide.measures.compat.display import Column, compared
from tensortide.measures.deeplite import Comparative, ComputeComplexity, DefaultDisplay, Flops
from tensortide.recorder.torch_compat import key_above_autograd
from tests.measures.compat.models import ResNet18, SmallNetwork, profiler_of, small_test_net

pytestmark = pytest.mark.skipif(key_above_autograd is None, reason="this PyTorch takes no handler above autograd")


@pytest.mark.slow
def test_the_footprint_is_the_published_one_with_and_without_the_weights(logged: io.StringIO) -> None:
    profiler = profiler_of(ResNet18())
    profiler.register_profiler_function(ComputeComplexity())
    profiler.compute_network_status(include_weights=True, print_mode="info")
    lines = logged.getvalue().strip().splitlines()
    assert lines[1:6] == [
        f"|{'Deeplite Profiler':^63}|",
        f"+{'-' * 41}+{'-' * 21}+",
        "|             Param Name (Original Model) |                Value|",
        "|                   Backend: TorchBackend |                     |",
        f"+{'-' * 41}+{'-' * 21}+",
    ]
    assert lines[6:] == [
        "|                         Model Size (MB) |              42.8014|",
        "|     Computational Complexity (GigaMACs) |               0.5573|",
        "|             Total Parameters (Millions) |              11.2201|",
        "|                   Memory Footprint (MB) |              48.4389|",
        f"+{'-' * 41}+{'-' * 21}+",
    ]
    alone = profiler.compute_status("memory_footprint", include_weights=False)
    assert alone == pytest.approx(48.4389 - 42.8014, abs=1e-4)
    assert profiler.compute_status("memory_footprint", batch_size=3) == pytest.approx(48.4389, abs=5e-5)
    rows = profiler.status_get("layerwise_data")
    assert len(rows) == 68
    assert rows[0]["index"] == "0_aten::_convolution"


def test_two_models_are_compared_as_there(logged: io.StringIO) -> None:
    one, other = profiler_of(ResNet18(), "ResNet-18"), profiler_of(SmallNetwork(), "small")
    for profiler in (one, other):
        profiler.register_profiler_function(ComputeComplexity())
    one.compare(other)
    lines = {line.split("|")[1].strip().split(" (")[0]: line.split("|")[2].strip() for line in boxed(logged.getvalue())}
    assert [lines[title] for title in ("Computational Complexity", "Total Parameters", "Model Size")] == [
        "0.01x",
        "0.00x",
        "0.00x",
    ]
    assert lines["Memory Footprint"] == "0.01x"
    assert {len(line) for line in logged.getvalue().splitlines() if line.startswith("|")} == {124}


def boxed(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith("|") and line.count("|") == 5]


@pytest.mark.parametrize(
    ("comparative", "x", "y", "shown"),
    [
        (Comparative.DIFF, 5, 2, "3.00"),
        (Comparative.DIV, 5, 2, "2.50x"),
        (Comparative.RECIPROCAL, 5, 2, "0.40x"),
        ("RECIPROCAL", 5, 4, "0.80x"),
        (Comparative.DIV, 5, 0, "INF"),
        (Comparative.NONE, 5, 2, "---"),
        (Comparative.DIFF, None, 2, "---"),
        ("coverage", 5, 2, "<Error Comparing>"),
    ],
)
def test_comparatives_are_displayed_as_there(comparative: Any, x: Any, y: Any, shown: str) -> None:
    keys = []
    for value in (x, y):
        key = deeplite.EvalMetric(comparative=comparative)
        key.value = value
        keys.append(key)
    assert compared(*keys) == shown


def test_long_names_do_not_overflow_the_box() -> None:
    key = deeplite.DynamicEvalMetric("a result with a name that is far too long for a column")
    text = DefaultDisplay().table([Column("a model with a name that is far too long", "TorchBackend", {key.NAME: key})])
    assert {len(line) for line in text.splitlines()} == {65}
    assert "<NotComputed>" in text


def test_units_that_are_scaled_apart_are_not_compared() -> None:
    giga, mega = Flops(), Flops()
    giga.value, mega.value = 0.5, 0.0005
    assert compared(giga, mega) == "<Unsupported units>"


def test_tables_go_to_the_logger_that_is_set() -> None:
    text = io.StringIO()
    logger = logging.Logger("own", logging.INFO)
    logger.addHandler(logging.StreamHandler(text))
    before = deeplite.getLogger().to
    deeplite.setLogger(logger)
    try:
        profiler_of(small_test_net()).display_status(print_mode="info")
        deeplite.getLogger("any").info("said")
    finally:
        deeplite.setLogger(before)
    assert "Param Name (Original Model)" in text.getvalue()
    assert text.getvalue().endswith("said\n")


def test_a_table_is_printed_while_nobody_has_configured_logging(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(logging.root, "handlers", [])
    profiler = profiler_of(small_test_net())
    profiler.display_status(print_mode="debug")
    assert capsys.readouterr().out == ""
    profiler.display_status(print_mode="info")
    assert "Param Name (Original Model)" in capsys.readouterr().out
    own = io.StringIO()
    monkeypatch.setattr(logging.root, "handlers", [logging.StreamHandler(own)])
    monkeypatch.setattr(logging.root, "level", logging.INFO)
    profiler.display_status(print_mode="info")
    assert "Param Name (Original Model)" in own.getvalue()
    assert capsys.readouterr().out == ""


def test_a_clone_may_have_a_name_and_columns_of_one_name_are_told_apart(logged: io.StringIO) -> None:
    profiler = profiler_of(small_test_net())
    profiler.display_status(profiler.clone(name="Half"), print_mode="info")
    assert "Value (Original Model)|" in logged.getvalue()
    assert "Value (Half)|" in logged.getvalue()
    profiler.display_status(profiler.clone(), print_mode="info")
    assert "First (Original Model)| " in logged.getvalue()
    assert "Second (Original Model)|" in logged.getvalue()


@pytest.mark.parametrize(
    ("options", "shown"),
    [
        ({}, ["Model Size", "Computational Complexity", "Total Parameters", "Eval: own"]),
        ({"order": ("flops", "own")}, ["Computational Complexity", "Eval: own", "Total Parameters", "Model Size"]),
        ({"order": ["total_params"], "include_leftovers": False}, ["Total Parameters"]),
        ({"exclude": "flops"}, ["Model Size", "Total Parameters", "Eval: own"]),
    ],
)
def test_rows_are_ordered_and_left_out(options: dict[str, Any], shown: list[str]) -> None:
    keys = [deeplite.TotalParams(), Flops(), deeplite.ModelSize(), deeplite.EvalMetric()]
    keys[3].NAME, keys[3].TITLE = "own", "Eval: own"
    display = DefaultDisplay(**options)
    assert [key.friendly_name() for key in display.rows({key.NAME: key for key in keys})] == shown


def test_a_value_that_was_not_computed_formats_like_a_number() -> None:
    value = deeplite.NotComputedValue()
    assert f"|{value:>20.4f}|{value!r}" == "|       <NotComputed>|<NotComputed>"
