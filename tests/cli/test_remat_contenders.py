"""``tensortide remat contenders`` as a user runs it."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from tensortide.cli import main
from tensortide.importers.dtrlog.write import write_log
from tensortide.plans.checkpointing.static import chain
from tensortide.studies.remat.contenders import made_up

CHAIN = [
    "remat",
    "contenders",
    "chain:8",
    "--budgets",
    "1.0,0.8,0.6,0.2",
    "--optimum-time",
    "20",
    "--policies",
    "dtr-eq",
]


def rows_of(table: dict[str, list[Any]]) -> list[dict[str, Any]]:
    """The rows of a table that JSON has by columns."""
    return [dict(zip(table, row, strict=True)) for row in zip(*table.values(), strict=True)]


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    with pytest.raises(SystemExit) as ended:
        main(list(arguments))
    said = capsys.readouterr()
    assert (ended.value.code, said.err) == (0, "")
    return said.out


def test_text_figure_and_csv(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    figure, sheet = tmp_path / "contenders.png", tmp_path / "contenders.csv"
    text = run(capsys, *CHAIN, "--figure", str(figure), "--csv", str(sheet))
    rows: dict[str, list[str]] = {}
    for line in text.splitlines():
        rows.setdefault(line[:19].strip(), [cell.strip() for cell in line[19:].split("  ") if cell.strip()])
    assert rows["no recomputation"] == ["1.000^", "no fit", "no fit", "no fit"]
    assert rows["checkpoint last"] == ["3.118!", "3.118!", "3.118!", "no fit"]
    assert rows["Checkmate"] == ["1.000^=", "1.118^=", "1.235^=", "no plan"]
    assert rows["in its node model"] == ["none"]
    assert rows["dtr-eq"] == ["1.000^", "1.118^", "1.235^", "oom"]
    assert "*" not in text
    assert "^: the fastest shown here at that budget, which need not be optimal" in " ".join(text.split())
    assert f"wrote {figure}" in text
    assert figure.read_bytes().startswith(b"\x89PNG")
    with sheet.open(newline="") as file:
        lines = list(csv.DictReader(file))
    found = {(line["strategy"], line["budget_bytes"]): line for line in lines}
    best = found["Checkmate", "8"]
    assert (best["clock_ns"], best["peak_bytes"], best["proved"], best["best"]) == ("19", "8", "true", "true")
    assert (found["dtr-eq", "2"]["verdict"], found["dtr-eq", "2"]["clock_ns"]) == ("oom", "")
    assert float(found["checkpoint last", "10"]["overhead"]) == pytest.approx(53 / 17)
    assert found["checkpoint last", "10"]["best"] == "false"


def test_json_of_a_log(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recording = made_up(chain(6, nbytes=range(1, 14)))
    path = write_log(recording.graph, recording.durations_ns, tmp_path / "steps.log")
    options = ("--policies", "dtr-eq,lru", "--optimum-time", "0")
    text = run(capsys, "remat", "contenders", str(path), *options, "--json")
    found = json.loads(text)["sections"]["contenders"]
    tables = {
        name: [dict(zip(t, row, strict=True)) for row in zip(*t.values(), strict=True)]
        for name, t in found["tables"].items()
    }
    schedules = {row["strategy"]: row for row in tables["schedules"]}
    assert tables["steps"][0]["name"] == "steps"
    assert len({row["budget_bytes"] for row in tables["entries"]}) == 8
    assert schedules["no recomputation"]["overhead"] == 1.0
    assert any("Checkmate" in note["text"] and "no time was given to it" in note["text"] for note in found["notes"])
    for row in tables["entries"]:
        assert row["verdict"] != "ok" or row["peak_bytes"] <= row["budget_bytes"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["chain:0"], "chain:0: a chain has 1 to 10,000 layers"),
        (["chain:8", "--set", "a=1"], "chain:8 is made up"),
        (["chain:8", "--machine", "H100"], "chain:8 is made up"),
        (["chain:8", "--policies", "nope"], "there is no policy 'nope'"),
        (["chain:8", "--budgets", "much"], "'much' is no budget"),
        (["chain:8", "--figure", "out.txt"], "a figure is a file that ends in"),
        (["chain:8", "--csv", "/nowhere/out.csv"], "cannot write /nowhere/out.csv"),
        (["missing.log"], "missing.log"),
    ],
)
def test_one_clear_message(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["remat", "contenders", *arguments])
    said = capsys.readouterr()
    assert ended.value.code == 2
    assert said.err.startswith("error: ")
    assert message in said.err
    assert said.out == ""
