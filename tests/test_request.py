"""Requests: which values and options they take, what they say of others, and that they are made of flat values."""

from __future__ import annotations

import dataclasses
import math
import pickle
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensortide.cli.verb import prepare
from tensortide.errors import (
    Doubtful,
    ExitStatus,
    OutputError,
    RequestError,
    WorkloadError,
    status_of,
)
from tensortide.executors.request import WorkerRequest
from tensortide.request import Opt, Request, exclusive, made, option_of, options
from tensortide.targets.requests import CaptureRequest, MeasureRequest, TimedRequest, TimesRequest
from tests.toy_request import Chosen, Inner, Made, Toy

NAN = math.nan


def toy(**values: Any) -> Toy:
    return made(Toy, {"target": "mlp", **values})


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"ratio": 1.5}, "--ratio takes a finite number from 0 up to 1, not 1.5"),
    ({"ratio": -1.0}, "--ratio takes a finite number from 0 up to 1, not -1"),
    ({"ratio": NAN}, "--ratio takes a finite number from 0 up to 1, not nan"),
    ({"change": math.inf}, "--change takes a finite number, not inf"),
    ({"change": -math.inf}, "--change takes a finite number, not -inf"),
    ({"change": "much"}, "--change takes a finite number, not much"),
    ({"change": True}, "--change takes a finite number, not True"),
    ({"change": None}, "--change takes a finite number, not None"),
    ({"clock": "thread", "limit": NAN}, "--limit takes a number above 0, not nan"),
    ({"clock": "thread", "limit": 0}, "--limit takes a number above 0, not 0"),
    ({"clock": "thread", "limit": -math.inf}, "--limit takes a number above 0, not -inf"),
    ({"steps": 1.5}, "--steps takes a whole number, not 1.5"),
    ({"steps": True}, "--steps takes a whole number, not True"),
    ({"steps": "3"}, "--steps takes a whole number, not 3"),
    ({"sizes": (4, 0)}, "--size takes a whole number from 1 up to 1099511627776, not 0"),
    ({"sizes": (10**400,)}, f"--size takes a whole number from 1 up to 1099511627776, not 1{'0' * 400}"),
    ({"sizes": 4}, "--size takes a tuple, not 4"),
    ({"count": 1}, "--count takes a whole number from 2 or auto, not 1"),
    ({"count": "all"}, "--count takes a whole number from 2 or auto, not all"),
    ({"clock": "sun"}, "--clock takes wall or thread, not sun"),
    ({"clock": ""}, "--clock takes wall or thread, not ''"),
    ({"listed": "yes"}, "--list takes True or False, not yes"),
    ({"target": 3}, "TARGET takes a text, not 3"),
    ({"source": 3}, "--source takes a file, not 3"),
    ({"budget": 0}, "--budget takes a whole number from 1, not 0"),
    ({"budget": "0GiB"}, "--budget takes a whole number from 1, not 0"),
    ({"budget": "lots"}, "--budget: not a number of bytes: 'lots'.\nWrite it as 8GiB, 24 GB, 512MiB or 8589934592."),
    ({"budget": True}, "--budget takes a whole number from 1, not True"),
    (
        {"budgets": ("1GiB", "x")},
        "--budgets: not a number of bytes: 'x'.\nWrite it as 8GiB, 24 GB, 512MiB or 8589934592.",
    ),
    ({"budget": 1, "listed": True}, "--budget and --list exclude each other"),
    ({"budget": 1, "budgets": (1,), "listed": True}, "--budget and --budgets and --list exclude each other"),
    ({"limit": 3.0}, "--limit goes with --size or --clock thread: wall time is not limited"),
]


@pytest.mark.parametrize(("values", "message"), REFUSED, ids=range(len(REFUSED)))
def test_a_wrong_value_is_an_error_that_names_the_option(values: dict[str, Any], message: str) -> None:
    with pytest.raises(RequestError) as caught:
        toy(**values)
    assert str(caught.value) == message
    assert status_of(caught.value) is ExitStatus.WRONG


TAKEN: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"ratio": 1}, {"ratio": 1}),
    ({"ratio": 0.0}, {"ratio": 0.0}),
    ({"clock": "thread", "limit": math.inf}, {"limit": math.inf}),
    ({"sizes": (1,), "limit": 1e-300}, {"limit": 1e-300}),
    ({"sizes": [1, 1 << 40]}, {"sizes": (1, 1 << 40)}),
    ({"budget": "8GiB"}, {"budget": 8 << 30}),
    ({"budget": 8 << 30}, {"budget": 8 << 30}),
    ({"budget": 8e9}, {"budget": 8_000_000_000}),
    ({"budgets": ("1KiB", 3)}, {"budgets": (1024, 3)}),
    ({"count": 2}, {"count": 2}),
    ({"source": "a/b"}, {"source": Path("a/b")}),
    ({"parts": ["a", Path("b")]}, {"parts": (Path("a"), Path("b"))}),
    ({"change": -0.0}, {"change": 0.0}),
    ({"limit": None, "budgets": ()}, {}),
]


@pytest.mark.parametrize(("values", "found"), TAKEN, ids=[str(values) for values, _ in TAKEN])
def test_a_value_is_taken_and_its_text_read(values: dict[str, Any], found: dict[str, Any]) -> None:
    request = toy(**values)
    assert {name: request.get(name) for name in found} == found


def test_a_request_is_read_once() -> None:
    request = toy(budget="8GiB", source="a")
    assert replace(request, ratio=0.1).budget == 8 << 30
    assert pickle.loads(pickle.dumps(request)) == request
    assert hash(request) == hash(toy(budget=8 << 30, source=Path("a")))


def test_exactly_one_of_two() -> None:
    for values in dict[str, Any](), {"left": 1, "right": "x"}:
        with pytest.raises(RequestError, match=r"^there are two ways: give either --left or --right$"):
            made(Chosen, values)
    assert (Chosen(left=0).left, Chosen(right="").right) == (0, "")


def test_options_are_those_of_the_requests_inside_after_its_own_and_arguments_first() -> None:
    names = [one.field.name for one in options(Toy)]
    assert names[:2] == ["target", "others"]
    assert names[7:] == ["count", "listed", "source", "output", "parts", "clock", "sizes", "limit", "secret"]
    assert option_of(Toy, "sizes").path == ("inner", "sizes")
    assert [option_of(Toy, name).names for name in ("target", "listed", "output", "clock")] == [
        (),
        ("--list",),
        ("--output", "-o"),
        ("--clock",),
    ]
    assert [option_of(Toy, name).group for name in ("clock", "listed", "steps")] == ["Measuring", "Others", "The toy"]
    assert option_of(Toy, "target").default is dataclasses.MISSING
    assert option_of(Made, "names").default == ("a", "b")


def test_given_are_those_that_are_not_at_their_default() -> None:
    assert [one.name for one in toy(steps=9, ratio=0.25, sizes=(3,)).given()] == ["TARGET", "--ratio", "--size"]
    assert [one.name for one in toy(change=0).given()] == ["TARGET"]


@dataclass(frozen=True, kw_only=True)
class Unset(Request):
    """A number that is none until it is given."""

    level: Annotated[float, Opt("Level.", infinite=True)] = NAN


def test_a_default_that_equals_nothing_is_not_given() -> None:
    with pytest.raises(RequestError, match="--level takes a number, not nan"):
        Unset()  # as from anybody else: whoever means none says None
    assert not made(Made, {}).has("names")


@dataclass(frozen=True, kw_only=True)
class TwoOutputs(Request):
    """Two options of one name."""

    inner: Inner = Inner()
    clock: Annotated[str, Opt("Again.")] = ""


@dataclass(frozen=True, kw_only=True)
class TwoNames(Request):
    """Two options that are typed alike."""

    first: Annotated[str, Opt("First.", "--first -f")] = ""
    second: Annotated[str, Opt("Second.", "--second -f")] = ""


@dataclass(frozen=True, kw_only=True)
class OtherDefaults(Request):
    """A request inside whose defaults are not its own."""

    inner: Inner = Inner(clock="thread")


@dataclass(frozen=True, kw_only=True)
class RuleOfNone(Request):
    """A rule about an option that there is not."""

    left: Annotated[str, Opt("Left.")] = ""
    RULES = (exclusive("left", "rihgt"),)


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (TwoOutputs, "TwoOutputs has two options --clock, clock"),
        (TwoNames, "TwoNames has two options -f"),
        (OtherDefaults, "OtherDefaults.inner has other defaults than Inner: --clock"),
        (RuleOfNone, "RuleOfNone has rules about rihgt, which are no options"),
    ],
)
def test_a_request_that_is_not_as_it_must_be_cannot_be_used(kind: type[Request], message: str) -> None:
    for _ in range(2):
        with pytest.raises(TypeError, match=f"^{message}$"):
            kind()


def failing(error: Exception) -> type[Request]:
    """A request whose option cannot be read."""

    def read(text: str) -> str:
        raise error

    hint = Annotated[str | None, Opt("Place.", read=read)]
    kind = dataclasses.make_dataclass("Failing", [("place", hint, None)], bases=(Request,), frozen=True)
    kind.__module__ = __name__
    return kind


@pytest.mark.parametrize(
    ("error", "message", "status"),
    [
        (ValueError("that is none"), "--place x: that is none", ExitStatus.WRONG),
        (ValueError("x is none"), "--place: x is none", ExitStatus.WRONG),
        (WorkloadError("no example 'x'"), "--place: no example 'x'", ExitStatus.WRONG),
        (RequestError("--place takes two, not x"), "--place takes two, not x", ExitStatus.WRONG),
        (Doubtful("nobody knows"), "--place x: nobody knows", ExitStatus.CANNOT),
    ],
)
def test_the_error_of_a_text_names_its_option_and_keeps_its_status(
    error: Exception, message: str, status: ExitStatus
) -> None:
    with pytest.raises(RequestError) as caught:
        made(failing(error), {"place": "x"})
    assert (str(caught.value), status_of(caught.value)) == (message, status)


def test_two_options_of_one_file_are_an_error_if_one_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "step.json").write_text("{}")
    (tmp_path / "link").symlink_to("step.json")
    wrong: dict[str, dict[str, Any]] = {
        "--source and --output": {"source": "step.json", "output": "link"},
        "--output and --part": {"output": "new", "parts": (str(tmp_path / "new"),)},
        "--part and --part": {"parts": ("new", "../" + tmp_path.name + "/new")},
        "TARGET and --output": {"target": "step.json", "output": "link"},
        "OTHERS and --part": {"others": ("mlp", "link"), "parts": ("a", "step.json")},
    }
    for both, values in wrong.items():
        with pytest.raises(OutputError, match=f"^{both} are one file, .*: give each a name of its own"):
            prepare(toy(**values))
    prepare(toy(target="step.json", source="step.json", others=("step.json",), output="new", parts=("a", "b")))
    prepare(toy(target="new", output="new"))  # no file: it is another kind of target


def test_files_that_cannot_be_written_are_found_before_any_work(tmp_path: Path) -> None:
    program = tmp_path / "train.py"
    program.write_text("")
    for values in ({"output": program}, {"parts": (tmp_path / "a", program)}, {"output": tmp_path / "none/x"}):
        with pytest.raises(OutputError, match=r"^cannot write"):
            prepare(toy(**values))
    prepare(toy(source=program))


WORDS = st.text("abc=1", min_size=1, max_size=5)
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "others": st.lists(WORDS).map(tuple),
    "budget": st.none() | st.integers(1, 1 << 60),
    "ratio": st.floats(0, 1),
    "change": st.floats(allow_nan=False, allow_infinity=False),
    "steps": st.integers(),
    "count": st.just("auto") | st.integers(2),
    "clock": st.sampled_from(("wall", "thread")),
    "sizes": st.lists(st.integers(1, 1 << 40), min_size=1).map(tuple),
    "limit": st.none() | st.floats(0, exclude_min=True, allow_nan=False),
    "secret": st.booleans(),
    "source": st.none() | WORDS.map(Path),
    "parts": st.lists(WORDS.map(Path)).map(tuple),
}
FLAT = st.fixed_dictionaries({"target": WORDS}, optional=VALUES).filter(
    lambda values: values.get("limit") is None or "sizes" in values
)


@given(FLAT)
def test_a_request_of_flat_values_gives_them_back(values: dict[str, Any]) -> None:
    request = made(Toy, {**values, "elsewhere": 3})
    assert {name: request.get(name) for name in values} == values
    others = [one for one in options(Toy) if one.field.name not in values]
    assert all(request.get(one.field.name) == one.default for one in others)
    assert {one.field.name for one in request.given()} <= set(values)
    again = made(Toy, {one.field.name: request.get(one.field.name) for one in options(Toy)})
    assert again == request == pickle.loads(pickle.dumps(request))


@given(st.floats(), st.floats(), st.floats())
def test_a_number_is_taken_where_it_is_in_the_range(value: float, least: float, most: float) -> None:
    low = None if math.isnan(least) else least
    high = None if math.isnan(most) else most
    hint = Annotated[float, Opt("", least=low, most=high)]
    kind = dataclasses.make_dataclass("Ranged", [("value", hint)], bases=(Request,), frozen=True)
    kind.__module__ = __name__
    inside = math.isfinite(value) and (low is None or value >= low) and (high is None or value <= high)
    try:
        assert kind(value=value).value == value
        assert inside
    except RequestError:
        assert not inside


@pytest.mark.parametrize("kind", [TimedRequest, MeasureRequest, WorkerRequest])
def test_a_request_of_every_target_has_defaults_that_it_takes(kind: type[Request]) -> None:
    assert made(kind, {}) == kind()
    assert kind().given() == []
    for one in options(kind):
        assert one.opt.help.strip().endswith(".")
        assert re.fullmatch(r"--[a-z][a-z-]*", one.name)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: CaptureRequest(real=True, fake=True), "--real and --fake exclude each other"),
        (lambda: CaptureRequest(ranks=0), "--ranks takes a whole number from 1 up to 1048576, not 0"),
        (lambda: CaptureRequest(patience=-1), "--patience takes a finite number from 0, not -1"),
        (lambda: CaptureRequest(patience=NAN), "--patience takes a finite number from 0, not nan"),
        (lambda: TimesRequest(durations=Path("x"), measure=True), "--durations and --measure exclude each other"),
        (
            lambda: TimedRequest(times=TimesRequest(measure=True), capture=CaptureRequest(machines=("t4",))),
            "--measure and --machine exclude each other",
        ),
        (lambda: MeasureRequest(isolated=True, recorded=Path("x")), "--isolated and --from exclude each other"),
        (lambda: MeasureRequest(steps=0), "--steps takes a whole number from 1, not 0"),
        (lambda: made(MeasureRequest, {"clock": "sun"}), "--clock takes wall or thread, not sun"),
        (lambda: WorkerRequest(threads=0), "--threads takes a whole number from 1, not 0"),
    ],
)
def test_what_every_target_may_be_asked_with_is_checked(make: Callable[[], Request], message: str) -> None:
    with pytest.raises(RequestError, match=f"^{message}$"):
        make()
