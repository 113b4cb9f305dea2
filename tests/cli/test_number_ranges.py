"""Numbers and nesting beyond what is held are one message."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tensortide.graph import load
from tensortide.graph.file import _HEADER, FORMAT, MAGIC
from tensortide.timing.durations import identity
from tests.cli.command import called
from tests.graphs import path_of


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("ranges")
    (path / "ok.tide").write_bytes(path_of("mlp").read_bytes())
    return path


LONG = "a" * 5000
HUGE: dict[str, tuple[Callable[[list[Any]], Any], str]] = {
    "sized": (lambda tables: tables[11].append([0, 5]), "is damaged"),
    "size": (lambda tables: tables[1][0].__setitem__(1, [["x", {"size": []}]]), "is damaged"),
    "zero": (lambda tables: (tables[10].append([["1/0", []]]), tables[11].append([0, 0])), "is damaged"),
    "deep": (lambda tables: tables[1][0].__setitem__(1, [["x", nested(900)]]), "is damaged"),
    "storage": (lambda tables: tables[4][0].__setitem__(0, 2**63), "4 EiB or more"),
    "shape": (lambda tables: tables[3][0].__setitem__(2, [2**40, 2**40]), "4 EiB or more"),
}
"""What is wrong with the tables of a saved graph, and the message."""
EVENT = '{"traceEvents": [{"ph": "X", "cat": "cpu_op", "name": "a", "ts": %s, "dur": %s, "args": {"Input Dims": %s}}]}'
FILES = [
    ("time ok.tide --from", "l.csv", "op,ns\n" + "1" * 5000 + ",5\n", "l.csv, line 2: there is no op 1"),
    ("time ok.tide --from", "l.csv", "op,ns\nmm," + "1" * 200_000, "l.csv is no list of times"),
    ("time ok.tide --from", "l.csv", "op,ns\n" + "m" * 200_000 + ",1", "l.csv is no list of times"),
    ("time ok.tide --from", "l.csv", "op,ns\n0,4e18\n", "l.csv, line 2: '4e18' is no duration"),
    ("time ok.tide --from", "t.json", EVENT % ("1e308", 1, "[]"), "t.json: event 0 (a) has no time in range"),
    ("time ok.tide --from", "t.json", EVENT % (1, "1e308", "[]"), "t.json: event 0 (a) has no time in range"),
    ("time ok.tide --from", "t.json", EVENT % (1, 1, "[" * 10**5 + "]" * 10**5), "t.json cannot be read: "),
    *(
        (command, "d.json", f'{{"format": "tensortide {rest}', message)
        for command, kind in (
            ("time ok.tide --durations", "durations"),
            ("remat simulate ok.tide --budget 90% --policy", "plan"),
        )
        for rest, message in (
            (f'{kind}/{"9" * 5000}"}}', f"d.json has {kind} format 999"),
            (f'{kind}", "x": {"[" * 10**5}{"]" * 10**5}}}', "d.json is damaged"),
        )
    ),
]
OPTIONS = [
    (f"count {LONG}", "no example 'aaa"),
    (f"count {LONG}.py:f", "File name too long"),
    (f"report ok.tide --html {LONG[:300]}.html", "File name too long"),
    ("memory ok.tide --idle --link 1e400GB/s", "no link is called '1e400GB/s'"),
]


def nested(depth: int) -> list[Any]:
    return [nested(depth - 1)] if depth else []


def assert_refused(folder: Path, command: str, message: str) -> None:
    done = called(folder, *command.split())
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: ")
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert "Warning" not in done.stderr
    assert max(map(len, done.stderr.split())) < 400


@pytest.mark.parametrize("name", HUGE)
def test_numbers_out_of_range_in_a_graph(name: str, folder: Path) -> None:
    change, message = HUGE[name]
    tables = msgspec.msgpack.decode(zlib.decompress((folder / "ok.tide").read_bytes()[_HEADER.size :]))
    change(tables)
    packed = msgspec.msgpack.encode(tables)
    header = _HEADER.pack(MAGIC, FORMAT.version, zlib.crc32(packed), len(packed))
    (folder / "huge.tide").write_bytes(header + zlib.compress(packed))
    assert_refused(folder, "report huge.tide", message)


@pytest.mark.parametrize(("command", "name", "content", "message"), FILES, ids=range(len(FILES)))
def test_numbers_out_of_range_in_a_file(command: str, name: str, content: str, message: str, folder: Path) -> None:
    (folder / name).write_text(content)
    assert_refused(folder, f"{command} {name}", message)


@pytest.mark.parametrize(("command", "message"), OPTIONS, ids=range(len(OPTIONS)))
def test_options_out_of_range(command: str, message: str, folder: Path) -> None:
    assert_refused(folder, command, message)


@pytest.mark.parametrize("command", ["memory ok.tide --idle", "remat simulate ok.tide --budget 90%"])
def test_durations_whose_sum_is_out_of_range(command: str, folder: Path) -> None:
    graph = load(folder / "ok.tide")
    durations = {"ns": [2**62] * len(graph), "source": "s", "kind": "measured", "graph": identity(graph)}
    file = {"format": "tensortide durations", "version": 5, "durations": durations}
    (folder / "long.json").write_bytes(msgspec.json.encode(file))
    assert_refused(
        folder, f"{command} --durations long.json", "long.json does not hold valid durations: the step takes"
    )


@pytest.mark.parametrize("limit", ["inf", "1e308"])
def test_a_limit_may_be_infinite(limit: str, folder: Path) -> None:
    done = called(folder, "remat", "simulate", "ok.tide", "--budget", "100%", "--policy", "lru", "--limit", limit)
    assert done.returncode == 0, done.stderr
