"""Versioned files: every format is declared once, and whatever is wrong with a file is one error with its path."""

from __future__ import annotations

import importlib.metadata
import tomllib
from pathlib import Path

import msgspec
import pytest

from tensortide.errors import TensortideError
from tensortide.formulas.formulas_file import FORMAT as FORMULAS
from tensortide.graph.file import FORMAT as GRAPH
from tensortide.measures.checks.baseline import FORMAT as BASELINE
from tensortide.measures.status import versions
from tensortide.plans.model import FORMAT as PLAN
from tensortide.plans.model import Plan, load_plan, save_plan
from tensortide.studies.placement.comparison import FORMAT as SEARCHES
from tensortide.studies.remat.grid import FORMAT as RUNS
from tensortide.timing.durations import FORMAT as DURATIONS
from tensortide.version import VERSION
from tensortide.versioned import Format, Head, written_by

ROOT = Path(__file__).parents[1]
FORMATS = {format.kind: format for format in (GRAPH, PLAN, DURATIONS, FORMULAS, RUNS, SEARCHES, BASELINE)}


class ToyError(TensortideError):
    pass


class Toy(msgspec.Struct):
    format: str
    version: int
    toys: list[int]


TOY = Format("toys", "tensortide toys", (2, 3), ToyError, "make them again", source="see the shop", most_bytes=100)


@pytest.mark.parametrize("kind", FORMATS)
def test_every_declaration_is_complete(kind: str, tmp_path: Path) -> None:
    found = FORMATS[kind]
    assert found.tag
    assert found.remedy
    assert found.version == max(found.versions)
    assert issubclass(found.error, TensortideError)
    with pytest.raises(found.error, match="cannot read"):
        found.read(tmp_path / "none")
    assert len({format.tag for format in FORMATS.values()}) == len(FORMATS)


def test_a_format_is_one_declaration(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    for version in (2, 3):
        path.write_text(f'{{"format": "tensortide toys", "version": {version}, "toys": [1, 2]}}')
        assert TOY.load(path, Toy).toys == [1, 2]
    assert TOY.version == 3


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", r"does not hold toys \(see the shop\)"),
        ("[]", "does not hold toys"),
        ('{"format": "tensortide games", "version": 2}', "does not hold toys"),
        ('{"format": "tensortide toys", "version": 2, "to', r"is damaged .*: make them again"),
        (
            '{"format": "tensortide toys", "version": 4}',
            "has toys format 4; this release reads 2 and 3: make",
        ),
        ('{"format": "tensortide toys/7"}', "has toys format 7"),
        ('{"format": "tensortide toys", "version": 2, "toys": ["x"]}', r"does not hold valid toys: .*\$.toys"),
        ('{"format": "tensortide toys", "version": 2, "toys": [' + "1," * 50 + "1]}", "is too large: more than 100"),
    ],
)
def test_whatever_is_wrong_is_one_error_with_the_path(content: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_text(content)
    with pytest.raises(ToyError, match=message) as caught:
        TOY.load(path, Toy)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.skipif(not Path("/dev/zero").exists(), reason="no endless file here")
def test_an_endless_file_ends() -> None:
    with pytest.raises(ToyError, match="too large"):
        TOY.load("/dev/zero", Toy)


def test_the_version_is_that_of_the_project_and_needs_no_installation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"] == VERSION

    def missing(name: str) -> str:
        raise importlib.metadata.PackageNotFoundError(name)

    for function in ("version", "metadata", "distribution"):
        monkeypatch.setattr(importlib.metadata, function, missing)
    assert load_plan(save_plan(Plan("x", ()), tmp_path / "plan.json")).graph == "x"
    assert msgspec.json.decode((tmp_path / "plan.json").read_bytes(), type=Head).tensortide == VERSION
    assert versions()["tensortide"] == VERSION
    assert written_by(Head(tensortide=VERSION)) == ""
    assert f"; it was written by tensortide 0.0.9 (this is {VERSION}), " in written_by(Head(tensortide="0.0.9"))
