"""Records say how their fields are shown, once: tables and facts are made of that."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import TYPE_CHECKING, Annotated, NamedTuple

import msgspec
import pytest

from tensortide.reports.blocks import Column, Fact
from tensortide.reports.of_records import column, columns, fact, facts, fields, table
from tensortide.shown import Show

if TYPE_CHECKING:
    import numpy as np

    from tensortide.graph import Graph


class Colour(Enum):
    RED = "red"


class Trial(msgspec.Struct, frozen=True):
    """Figures of a step."""

    peak_bytes: Annotated[int, Show("Peak", level=1)]
    time_ns: Annotated[float | None, Show("Step", before="sign", at_width=90)]
    sign: str = ""

    @property
    def twice_ns(self) -> int:
        """Without a Show a property stands only where it is named."""
        return 2 * round(self.time_ns or 0)

    @property
    def rate(self) -> Annotated[float, Show("Rate", "amount")]:
        """A property stands where its name is given, or last."""
        return 2.5


@dataclass(frozen=True)
class Refused:
    reason: Annotated[str, Show("Why not")]


class Outcome(NamedTuple):
    """Any class with annotations is a record."""

    name: Annotated[str, Show("Name", fold=True)]
    colour: Colour = Colour.RED
    saved_share: Annotated[float, Show("saved", if_any=True)] = 0.0
    found: Trial | Refused | None = None
    graph: Graph | np.bool_ | None = None
    fits: bool = True


ROWS = (Outcome("a", found=Trial(5, 7.6, "~")), Outcome("b", fits=False))


def test_a_table_has_a_column_for_each_field_under_its_name() -> None:
    made = table(Outcome, ROWS, key="outcomes", title="Outcomes", top=1)
    assert (made.key, made.title, made.top) == ("outcomes", "Outcomes", 1)
    assert [one.key for one in made.columns] == [
        "name",
        "colour",
        "saved_share",
        "fits",
    ]  # none for a record or a graph
    assert [(one.label, one.unit) for one in made.columns[::2]] == [("Name", "text"), ("saved", "share")]
    assert made["colour"] == ("red", "red")
    assert made["fits"] == (True, False)
    assert made.columns[0].fold


def test_a_field_without_a_show_is_data_and_one_without_any_value_as_well() -> None:
    assert [one.data for one in columns(Outcome, ROWS)] == [False, True, True, True]
    assert not column(Outcome, [Outcome("a", saved_share=0.1)], "saved_share").data


def test_a_way_through_a_field_leads_to_what_it_has_or_to_nothing() -> None:
    peak, time = columns(Outcome, ROWS, "found.peak_bytes", "found.time_ns as step_ns")
    assert (peak.key, peak.unit, peak.values) == ("peak_bytes", "bytes", (5, None))
    assert (time.key, time.values, time.before, time.at_width) == ("step_ns", (8, None), ("~", ""), 90)  # ns are whole
    assert column(Outcome, ROWS, "found.rate").values == (2.5, None)
    assert column(Outcome, ROWS, "found.twice_ns").data


def test_a_field_of_one_of_several_kinds_is_found_in_the_kind_that_has_it() -> None:
    rows = [Outcome("c", found=Refused("too large"))]
    assert column(Outcome, rows, "found.reason").values == ("too large",)


def test_the_columns_are_there_without_rows() -> None:
    assert [one.key for one in columns(Outcome, (), "name", "found.rate")] == ["name", "rate"]


def test_columns_stand_among_names_and_changes_apply_to_one() -> None:
    own = Column("rank", "", "text", ("1", "2"))
    first, second = columns(Outcome, ROWS, own, column(Outcome, ROWS, "name", label="N", data=True))
    assert first is own
    assert (second.label, second.data) == ("N", True)


class Used(NamedTuple):
    device: Annotated[int | str, Show("Device", "name")]


@pytest.mark.parametrize(("devices", "unit"), [((0, 1), "number"), (("gpu0", "gpu1"), "name"), ((0, "gpu1"), "name")])
def test_what_has_a_name_or_a_number_is_aligned_as_what_it_has(devices: tuple[int | str, ...], unit: str) -> None:
    assert column(Used, [Used(one) for one in devices], "device").unit == unit


def test_a_row_says_of_how_many_it_is() -> None:
    class Group(msgspec.Struct):
        name: Annotated[str, Show("Name", times="count")]
        count: int

    assert column(Group, [Group("a", 1), Group("b", 2), Group("c", 3)], "name").after == ("", " x2", " x3")


def test_facts_are_those_of_a_table_of_one_row() -> None:
    shown = facts(ROWS[0].found, Fact("own", "Own", 1), "peak_bytes", fact(ROWS[0].found, "time_ns", "measured"))
    assert [(one.key, one.label, one.value, one.level) for one in shown.rows] == [
        ("own", "Own", 1, 0),
        ("peak_bytes", "Peak", 5, 1),
        ("time_ns", "Step", 8, 0),
    ]
    assert (shown.rows[2].remark, shown.rows[2].before) == ("measured", "~")
    assert all(one.data for one in facts(ROWS[0].found, data=True).rows)


def test_a_remark_may_be_the_field_s_own_and_a_tuple_shows_its_members_or_their_number() -> None:
    class Series(msgspec.Struct):
        """Some times."""

        steps: Annotated[tuple[int, ...], Show("Steps", "count", remark="in a row")]
        names: Annotated[tuple[str, ...], Show("Names")] = ("a", "b")

    shown = facts(Series((3, 4, 5)), "steps", "names", fact(Series(()), "steps as none", "of none"))
    assert [(one.value, one.remark) for one in shown.rows] == [(3, "in a row"), ("a, b", ""), (0, "of none")]


def test_what_no_field_says_is_an_error_of_the_program() -> None:
    for name in ("nothing", "found.nothing", "graph.ops"):  # a Graph is imported for the type checker alone
        with pytest.raises(TypeError, match="Outcome"):
            column(Outcome, ROWS, name)


def test_a_measure_is_in_the_name() -> None:
    class Bad(msgspec.Struct):
        peak: Annotated[int, Show("Peak", "bytes")]

    with pytest.raises(ValueError, match="'peak' is in bytes"):
        column(Bad, [Bad(1)], "peak")


def test_fields_are_those_of_all_bases_in_their_order() -> None:
    class Gain(Trial, frozen=True):
        saved_bytes: int = 0

    assert list(fields(Gain)) == ["peak_bytes", "time_ns", "sign", "rate", "saved_bytes"]


class Level(IntEnum):
    LOW = 1

    def __str__(self) -> str:
        return "low"


class Device(msgspec.Struct):
    level: Level
    names: Annotated[tuple[str, ...], Show("Names")]
    memory_gbytes_per_s: float
    bus_bytes_per_s: float


def test_words_of_numbers_and_several_texts_are_text_and_a_rate_is_no_time() -> None:
    made = table(Device, [Device(Level.LOW, ("a", "b"), 1.5, 2.0)], key="devices")
    assert [(one.key, one.unit, one.values) for one in made.columns] == [
        ("level", "text", ("low",)),
        ("names", "text", ("a, b",)),
        ("memory_gbytes_per_s", "number", (1.5,)),
        ("bus_bytes_per_s", "bytes_per_s", (2.0,)),
    ]
