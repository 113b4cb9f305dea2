"""The section of measured durations: every figure adds up, and what is unknown shows."""

from __future__ import annotations

import io
from pathlib import Path

import msgspec
import pytest
from rich.console import Console

from tensortide.graph import OUTSIDE, Graph, Role
from tensortide.reports.blocks import Document, Section
from tensortide.reports.render.terminal import render_terminal
from tensortide.reports.sections import Step, time
from tensortide.reports.sections.time import document
from tensortide.timing import Durations, Measurement, Platform, Sample, device, estimate, identity
from tests.golden import assert_golden
from tests.graphs import Builder

GOLDEN = Path(__file__).with_name("time.txt")


def graph() -> Graph:
    builder = Builder()
    tensor = builder.storage(4000, Role.INPUT)
    for index, name in enumerate(("aten.relu.default", "aten.relu.default", "aten.cos.default", "mylib.own.default")):
        result = builder.storage(4000, birth=index)
        builder.op([tensor], [result], name=name)
        tensor = result
    return builder.graph()


MACHINE = Platform(
    device="cpu",
    name="Some CPU",
    isa="AVX2",
    threads=1,
    cores=2,
    governor="performance",
    load_before=0.5,
    load_after=3.5,
    versions={"torch": "2.13.0"},
)


def durations(**changes: object) -> Durations:
    measurement = Measurement(
        how="step",
        clock="wall",
        min_ns=(900, 1900, 40_000, 0),
        p90_ns=(1200, 2200, 60_000, 0),
        samples=(9, 9, 9, 0),
        machine=MACHINE,
        step=Sample(100_000, 90_000, 120_000, 10),
        hooked=Sample(110_000, 100_000, 130_000, 9),
        hook_ns=10_000,
        overhead_ns={"forward": 30_000},
        warm_up=3,
        stand_ins={3: "it cannot be executed"},
    )
    measurement = msgspec.structs.replace(measurement, **changes)
    return Durations((1000, 2000, 50_000, 7000), "measured here", "measured", 1, identity(graph()), measurement)


def shown(made: Document, width: int = 80) -> str:
    file = io.StringIO()
    render_terminal(made, Console(file=file, width=width, no_color=True, highlight=False))
    return file.getvalue()


def made(**changes: object) -> Document:
    return document(graph(), durations(**changes), target="step.py:train")


def numbers(section: Section, table: str, column: str) -> list[float]:
    values = section.table(table)[column]
    assert all(isinstance(value, int | float) for value in values)
    return [value for value in values if isinstance(value, int | float)]


def test_the_text_is_this() -> None:
    assert_golden("".join(f"--- {width} columns\n{shown(made(), width)}" for width in (80, 100)), GOLDEN)


@pytest.mark.parametrize("width", [80, 100, 130, 160])
def test_predicted_times_fit_the_terminal_with_their_names_intervals_and_provenance(width: int) -> None:
    step = graph()
    text = shown(document(step, estimate(step, device("H100-SXM-80GB")), target="x"), width)
    lines = text.splitlines()
    assert max(map(len, lines)) <= width
    tables = {title: lines.index(title) for title in ("By phase", "By op")}
    tables["By module"] = next(i for i, line in enumerate(lines) if line.startswith("By module"))
    for title, row in (("By phase", "forward "), ("By op", "relu "), ("By module", "(outside) ")):
        head, first = lines[tables[title] + 1 : tables[title] + 3]
        assert first.startswith(row)
        assert "Basis" in head
        assert ("80 % interval" in head) is (title != "By op" or width >= 98)
    assert "Phase" in lines[tables["By op"] + 1]


def test_all_ways_to_break_the_time_down_add_up() -> None:
    section = made()["time"]
    assert section.fact("op_sum_ns") == 60_000
    for table in ("phases", "ops", "shapes", "modules"):
        assert sum(numbers(section, table, "time_ns")) == 60_000
        assert sum(numbers(section, table, "calls")) == 4
        assert sum(numbers(section, table, "share")) == pytest.approx(1)
    assert section.fact("explained_ns") == 90_000
    assert section.fact("difference_change") == pytest.approx(-0.1)
    by_op = section.table("ops")
    relu = by_op["name"].index("aten.relu")
    assert [by_op[key][relu] for key in ("calls", "median_ns", "min_ns", "p90_ns", "stand_ins")] == [
        2,
        1500,
        900,
        2150,
        0,
    ]
    assert by_op["traffic_bytes_per_s"][relu] == pytest.approx(2 * 8000 / 3000e-9)


def test_a_module_includes_those_below_it_also_the_root() -> None:
    builder = Builder()
    tensor, root = builder.storage(4, Role.INPUT), builder.module("")
    for index, module in enumerate((root, builder.module("head"), builder.module("body"), OUTSIDE)):
        builder.op([tensor], [builder.storage(4, birth=index)], module=module)
    timed = Durations((1, 2, 4, 8), "measured here", "measured", 1, identity(builder.graph()))
    table = document(builder.graph(), timed, target="x")["time"].table("modules")
    times = dict(zip(table["module"], table["time_ns"], strict=True))
    assert times == {"(root)": 7, "body": 4, "head": 2, "(outside)": 8}


@pytest.mark.parametrize(
    ("changes", "remark"),
    [
        ({}, "other processes take the cores"),
        ({"clock": "thread"}, "Take more steps"),
        ({"machine": None}, "Take more steps"),
        ({"overhead_ns": {"forward": 38_000}}, None),
    ],
)
def test_an_account_that_does_not_close_says_what_to_do(changes: dict[str, object], remark: str | None) -> None:
    text = " ".join(shown(made(**changes)).split())
    assert ("do not explain the step" in text) == (remark is not None)
    assert remark is None or remark in text


def test_durations_without_a_measurement_are_shown_too() -> None:
    plain = msgspec.structs.replace(durations(), measurement=None)
    found = document(graph(), plain, target="x")
    assert all(fact.key != "step_ns" for fact in found["time"].blocks[0].rows)  # type: ignore[union-attr]
    assert "4 ops, measured here" in shown(found)
    assert "By op" in shown(found)


def test_it_is_part_of_a_report_where_durations_were_measured() -> None:
    assert time.of_step(Step(graph())) is None
    assert time.of_step(Step(graph(), durations())) == made()["time"]


@pytest.mark.parametrize("width", [80, 100, 140])
def test_it_fits_the_width(width: int) -> None:
    assert max(map(len, shown(made(), width).splitlines())) <= width
