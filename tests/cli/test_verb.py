"""Verbs made of requests: what is typed becomes their values, and what they return the exit status."""

from __future__ import annotations

import inspect
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import pytest
from hypothesis import HealthCheck, given, settings

from tensortide.cli import main
from tensortide.cli.app import VERBS, Verb
from tensortide.cli.show import Files, OutputRequest
from tensortide.cli.verb import requests_of, verb
from tensortide.errors import ExitStatus, RequestError
from tensortide.request import Arg, Opt, Request, made
from tests.cli.command import fails, run
from tests.test_request import FLAT
from tests.toy_request import Inner, Toy

ASKED: list[Toy] = []
RETURNED: list[ExitStatus | None] = []


@verb
def toy(asked: Toy, out: OutputRequest) -> ExitStatus | None:
    """Say nothing of a toy, in a sentence
    of two lines.

    And in a second paragraph, of which no line is as
    long as that of the terminal.
    """
    ASKED.append(asked)
    if not out.quiet:
        print("played")  # noqa: T201 # a verb's answer
    return RETURNED.pop() if RETURNED else None


@dataclass(frozen=True, kw_only=True)
class Pair(Request):
    """Two arguments, one of which must be given, and an option that must."""

    first: Annotated[str, Arg("The first.")]
    level: Annotated[int, Opt("The level.", least=-5)]
    size: Annotated[int, Opt("The size.", read=int)]
    second: Annotated[str, Arg("The second.")] = "other"


@verb
def pair(asked: Pair) -> None:
    """Take two."""
    ASKED.append(asked)  # type: ignore[arg-type] # another request


@dataclass(frozen=True, kw_only=True)
class Several(Request):
    """Arguments of which one at least must be given."""

    levels: Annotated[tuple[int, ...], Arg("The levels.", least=0)]
    sizes: Annotated[tuple[int, ...], Opt("The sizes.", read=int)] = ()
    room: Annotated[int, Opt("The room.", read=int)] = 4


@verb
def several(asked: Several) -> None:
    """Take several."""
    ASKED.append(asked)  # type: ignore[arg-type] # another request


@pytest.fixture(autouse=True)
def _toys(monkeypatch: pytest.MonkeyPatch) -> None:
    toys = {name: Verb(f"tests.cli.test_verb:{name}", f"A {name}.") for name in ("toy", "pair", "several")}
    monkeypatch.setitem(VERBS, "Toys", toys)
    ASKED.clear()
    RETURNED.clear()


def asked(*typed: str) -> Any:
    """The request that ``typed`` makes."""
    with pytest.raises(SystemExit) as stopped:
        main([*typed])
    assert stopped.value.code in (0, None)
    return ASKED.pop()


TYPED: list[tuple[str, dict[str, Any]]] = [
    ("a", {}),
    ("a b c", {"others": ("b", "c")}),
    ("--steps 3 a b --list c", {"others": ("b", "c"), "steps": 3, "listed": True}),
    ("a --size 1 --size 2 b", {"others": ("b",), "sizes": (1, 2)}),
    ("a --list b --steps 3 c d", {"others": ("b", "c", "d"), "steps": 3, "listed": True}),
    ("a --budgets 1KiB --budgets=2", {"budgets": (1024, 2)}),
    ("a --budget 1.5GiB", {"budget": 3 << 29}),
    ("a --clock thread --limit inf", {"clock": "thread", "limit": float("inf")}),
    ("a --clock=thread --limit 1e3", {"clock": "thread", "limit": 1000.0}),
    ("a --count auto", {"count": "auto"}),
    ("a --count 12", {"count": 12}),
    ("a --ratio 1", {"ratio": 1.0}),
    ("a -r 0.25", {"ratio": 0.25}),
    ("a --steps -3 b", {"steps": -3, "others": ("b",)}),
    ("a --change -1.5", {"change": -1.5}),
    ("a --change -.5", {"change": -0.5}),
    ("a --change=-1e-3", {"change": -0.001}),
    (
        "a --source x/y -o z --part p --part q",
        {"source": Path("x/y"), "output": Path("z"), "parts": (Path("p"), Path("q"))},
    ),
    ("a --secret", {"secret": True}),
]


@pytest.mark.parametrize(("typed", "values"), TYPED, ids=[typed for typed, _ in TYPED])
def test_what_is_typed_becomes_the_request(typed: str, values: dict[str, Any]) -> None:
    found = asked("toy", *typed.split())
    assert found == made(Toy, {"target": "a", **values})
    for name, value in values.items():
        assert type(found.get(name)) is type(value)


def test_arguments_come_first_whatever_stands_before_them_in_the_class() -> None:
    for typed in ("a --level -2 --size 3", "--size 3 --level -2 a other", "--level=-2 a --size=3"):
        assert asked("pair", *typed.split()) == Pair(first="a", level=-2, size=3)


def test_arguments_of_any_number_are_numbers_too() -> None:
    assert asked("several", "1", "--sizes", "4", "2") == Several(levels=(1, 2), sizes=(4,))


def texts(name: str, value: Any) -> list[str]:
    """How ``value`` is typed."""
    names = {"sizes": "--size", "parts": "--part", "listed": "--list"}
    option = names.get(name, f"--{name}")
    if isinstance(value, bool):
        return [option] * value
    if name in ("target", "others"):
        return [] if name == "target" else list(value)
    return [f"{option}={one}" for one in (value if isinstance(value, tuple) else (value,)) if one is not None]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(FLAT)
def test_every_request_can_be_typed(values: dict[str, Any]) -> None:
    parts = values.get("parts", ())
    if len({*parts, values.get("source")}) <= len(parts):
        return  # two options of one file
    typed = [text for name, value in values.items() for text in texts(name, value)]
    assert asked("toy", values["target"], *typed) == made(Toy, values)


WRONG: list[tuple[str, dict[str, Any]]] = [
    ("--ratio 1.5", {"ratio": 1.5}),
    ("--ratio -1", {"ratio": -1.0}),
    ("--ratio nan", {"ratio": float("nan")}),
    ("--ratio half", {"ratio": "half"}),
    ("--change -inf", {"change": float("-inf")}),
    ("--change ''", {"change": ""}),
    ("--steps 1.5", {"steps": 1.5}),
    ("--steps nine", {"steps": "nine"}),
    ("--size 3 --size 0", {"sizes": (3, 0)}),
    ("--size 3 --size x", {"sizes": (3, "x")}),
    ("--clock sun", {"clock": "sun"}),
    ("--count all", {"count": "all"}),
    ("--count 1", {"count": 1}),
    ("--budget lots", {"budget": "lots"}),
    ("--budget -1", {"budget": "-1"}),
    ("--budgets 1 --budgets x", {"budgets": ("1", "x")}),
    ("--budget 1 --list", {"budget": 1, "listed": True}),
    ("--clock wall --limit 3", {"limit": 3.0}),
]


@pytest.mark.parametrize(("typed", "values"), WRONG, ids=[typed for typed, _ in WRONG])
def test_python_and_the_command_line_say_the_same(
    typed: str, values: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(RequestError) as caught:
        made(Toy, {"target": "a", **values})
    heard = fails(capsys, "toy", "a", *(word.replace("''", "") for word in typed.split()))
    assert heard == f"error: {caught.value}\n"
    assert ASKED == []


@pytest.mark.parametrize(
    ("typed", "message"),
    [
        (("toy",), 'Command "toy" parameter TARGET requires an argument.'),
        (("pair", "a", "--size", "3"), "--level"),
        (("pair", "a", "--level", "3"), "--size"),
        (("several", "--sizes", "3"), "LEVELS"),
        (("several", "3", "x"), "LEVELS takes a whole number from 0, not x"),
        (("several", "3", "-1"), "LEVELS takes a whole number from 0, not -1"),
        (("toy", "a", "--steps"), "--steps"),
        (("toy", "a", "--no-list"), "--no-list"),
        (("toy", "a", "--steps", "1", "--steps", "2"), "--steps"),
        (("toy", "a", "--unasked", "1"), "--unasked"),
        (("toy", "a", "--target", "1"), "--target"),
    ],
)
def test_what_is_missing_or_unknown_is_wrong_usage(
    typed: Sequence[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert message in fails(capsys, *typed)
    assert ASKED == []


def shown(capsys: pytest.CaptureFixture[str], *typed: str) -> str:
    return " ".join(run(capsys, *typed, "--help").split())


def test_the_help_is_made_of_the_request(capsys: pytest.CaptureFixture[str]) -> None:
    text = run(capsys, "toy", "--help-all")
    assert text.splitlines()[:7] == [
        "Usage: tensortide toy TARGET [OTHERS...] [OPTIONS]",
        "",
        "Say nothing of a toy, in a sentence of two lines.",
        "",
        "And in a second paragraph, of which no line is as long as that of the terminal.",
        "",
        "Arguments",
    ]
    flat = " ".join(text.split())
    for part in (
        "TARGET A target. OTHERS... Further targets.",
        "--steps N Steps to measure (default: 9).",
        "--ratio, -r NUMBER A ratio; by default half. --",  # which is told already
        "--clock {wall,thread} Which clock (default: wall).",
        "--count N|auto How many, or auto (default: auto).",
        "--change NUMBER A change (default: 0).",
        "--budget BYTES Memory: 8GiB. --",
        "--part FILE Where parts go. Repeatable.",
    ):
        assert part in flat, part
    assert "secret" not in text
    assert "unasked" not in text
    assert "--no-" not in text
    headings = [line for line in text.splitlines()[6:] if line and not line.startswith(" ")]
    assert headings == ["Arguments", "The toy", "Others", "Measuring", "Output"]


def test_help_has_what_must_be_given_and_what_most_people_need(capsys: pytest.CaptureFixture[str]) -> None:
    text = run(capsys, "toy", "--help")
    assert "second paragraph" not in text
    assert text.splitlines()[4:] == [
        "Options",
        "  TARGET     A target.",
        "  OTHERS...  Further targets.",
        "  --json     Print JSON instead of text.",
        "",
        "15 more options: tensortide toy --help-all",
    ]


def test_an_option_that_must_be_given_is_marked(capsys: pytest.CaptureFixture[str]) -> None:
    flat = shown(capsys, "pair")
    assert "Usage: tensortide pair FIRST [SECOND] --level N --size N [OPTIONS]" in flat
    assert "--level N The level. Required." in flat
    assert "--size N The size. Required." in flat
    assert "The second (default: other)." in flat


@pytest.mark.parametrize("status", [None, *ExitStatus])
def test_the_status_returned_is_that_of_the_program(
    status: ExitStatus | None, capsys: pytest.CaptureFixture[str]
) -> None:
    RETURNED.append(status)
    with pytest.raises(SystemExit) as stopped:
        main(["toy", "a"])
    assert (stopped.value.code or 0) == (status or 0)
    assert capsys.readouterr() == ("played\n", "")


def test_errors_of_a_request_are_objects_under_json(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["toy", "a", "--ratio", "2", "--json"])
    assert (stopped.value.code, json.loads(capsys.readouterr().out)) == (
        2,
        {
            "format": "tensortide.error",
            "schema_version": 1,
            "kind": "RequestError",
            "message": "--ratio takes a finite number from 0 up to 1, not 2",
            "exit_status": 2,
        },
    )


def test_nothing_is_done_if_a_file_cannot_be_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "cannot write" in fails(capsys, "toy", "a", "--output", tmp_path / "none" / "x")
    assert "--output and --part are one file" in fails(
        capsys, "toy", "a", "-o", tmp_path / "x", "--part", tmp_path / "x"
    )
    assert ASKED == []


def test_the_requests_of_a_verb_can_be_asked_for() -> None:
    assert requests_of(toy) == {"asked": Toy, "out": OutputRequest}
    parameters = inspect.signature(toy).parameters
    assert [*parameters][:2] == ["target", "others"]
    assert {"clock", "json", "quiet"} <= parameters.keys()


def test_two_requests_of_a_verb_have_no_option_of_one_name() -> None:
    def twice(asked: Toy, again: Inner) -> None:
        """Ask twice."""

    def alike(files: Files, more: Toy) -> None:
        """Write."""

    twice.__annotations__ = {"asked": Toy, "again": Inner, "return": None}
    alike.__annotations__ = {"files": Files, "more": Toy, "return": None}
    with pytest.raises(TypeError, match=r"^twice has two options --clock, --limit, --secret, --size, clock, limit"):
        verb(twice)
    verb(alike)


def test_a_default_that_is_no_text_is_one_where_a_program_has_imported_pydantic() -> None:
    pytest.importorskip("pydantic")  # with which cyclopts then checks all values
    assert asked("several", "1", "2") == Several(levels=(1, 2))
    assert asked("several", "1", "--room", "5", "--sizes", "3") == Several(levels=(1,), room=5, sizes=(3,))
