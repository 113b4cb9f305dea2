"""The table of importers: complete rows, and every kind of file recognized by exactly one."""

from __future__ import annotations

import dataclasses
import importlib.metadata
import json
import subprocess
import sys
import tomllib
import typing
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensortide.errors import TensortideError, WorkloadError
from tensortide.importers import table
from tensortide.importers.table import GROUP, Importer, Options, importers, no_file
from tests.importers.files import OTHERS, READ, make

ROOT = Path(__file__).parents[2]
OURS = [importer for importer in importers() if importer.read.__module__.startswith("tensortide.")]


STARTS = [b"", b"TIDEGRPH", b'{"', b"\x0a", b"\x12", b"\x1f\x8b", b"class A(torch.nn.Module):\n"]


def names(path: Path) -> list[str]:
    return [importer.name for importer in importers() if importer.recognizes(path)]


@pytest.mark.parametrize("kind", READ)
def test_one_importer_recognizes_a_file_by_its_content(kind: str, tmp_path: Path) -> None:
    assert names(make(kind, tmp_path / "x")) == [READ[kind][0]]


@pytest.mark.parametrize("suffix", [".tide", ".log", ".meta", ".json", ".config", ".py"])
def test_names_do_not_matter(suffix: str, tmp_path: Path) -> None:
    for number, (kind, (name, _)) in enumerate(READ.items()):
        assert names(make(kind, tmp_path / f"{number}{suffix}")) == [name], kind


@pytest.mark.parametrize("kind", OTHERS)
def test_nobody_takes_what_nobody_reads(kind: str, tmp_path: Path) -> None:
    assert names(make(kind, tmp_path / "x.tide")) == []


def test_every_importer_has_a_file_here() -> None:
    assert {importer.name for importer in OURS if importer.sniff is not no_file} == {name for name, _ in READ.values()}


@given(
    data=st.binary(max_size=300),
    start=st.sampled_from([b"", b"TIDEGRPH", b'{"', b"\x0a", b"\x12", b"\x1f\x8b", b"class A"]),
)
def test_any_bytes_are_of_one_importer_at_most(
    tmp_path_factory: pytest.TempPathFactory, data: bytes, start: bytes
) -> None:
    path = tmp_path_factory.getbasetemp() / "any"
    path.write_bytes(start + data)
    assert len(names(path)) < 2


@pytest.mark.parametrize("path", [Path("a\0b"), Path("x" * 5000), Path("/proc/self/mem"), Path("/dev/null")])
def test_no_path_is_too_odd(path: Path) -> None:
    assert names(path) == []


@pytest.mark.parametrize("importer", OURS, ids=lambda importer: importer.name)
def test_every_row_is_complete(importer: Importer) -> None:
    assert importer.kind.startswith("a ")
    assert issubclass(importer.options, Options)
    assert importer.options() == importer.options(), "every option has a default, and they can be compared"
    hints = typing.get_type_hints(importer.options, include_extras=True)
    shown = [typing.get_args(hints[field.name])[-1] for field in dataclasses.fields(importer.options)
             if typing.get_origin(hints[field.name]) is typing.Annotated]  # fmt: skip
    assert all(isinstance(help_text, str) and help_text.endswith(".") for help_text in shown)


def test_our_rows_are_entry_points_like_any_other() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert sorted(project["entry-points"][GROUP]) == sorted(importer.name for importer in OURS)


def test_the_table_loads_nothing_heavy() -> None:
    code = (
        "import json, sys\nfrom tensortide.importers.table import importers\nimporters()\n"
        "print(json.dumps(sorted({'numpy', 'torch', 'google.protobuf'} & sys.modules.keys())))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == []


@pytest.fixture
def entry(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[importlib.metadata.EntryPoint]]:
    """The entry points of the group, to be filled."""
    found: list[importlib.metadata.EntryPoint] = []
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda group: found)
    table.importers.cache_clear()
    yield found
    table.importers.cache_clear()


@pytest.mark.parametrize("value", ["no.such.module:X", "tensortide.importers.tide:NOTHING", "tensortide:__version__"])
def test_a_broken_importer_is_named(value: str, entry: list[importlib.metadata.EntryPoint]) -> None:
    entry.append(importlib.metadata.EntryPoint("theirs", value, GROUP))
    with pytest.raises(TensortideError, match=value):
        importers()


def test_an_importer_that_is_installed_twice_is_one(entry: list[importlib.metadata.EntryPoint]) -> None:
    entry += 2 * [importlib.metadata.EntryPoint("tide", "tensortide.importers.tide:IMPORTER", GROUP)]
    assert len(importers()) == 1


def test_an_option_goes_with_its_importer() -> None:
    by_name = {importer.name: importer for importer in OURS}
    assert by_name["tf1"].options_of({"preset": "resnet"}, Path("x")) != by_name["tf1"].options()
    with pytest.raises(WorkloadError, match=r"x is a saved graph \(\.tide\): preset does not go with it"):
        by_name["tide"].options_of({"preset": "resnet"}, Path("x"))
