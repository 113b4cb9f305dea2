"""``tensortide place links`` at tiny sizes on the CPU, and what it refuses."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from tensortide.cli import main
from tensortide.placements.graphs import load_cluster
from tests.cli.command import run

TINY = ("--device", "cpu", "--sizes", "1e3,1e5,1e7", "--repeats", "9")
OWN = {"name": "mine", "kind": "cpu", "fp32_tflops": 1.5, "memory_gbytes_per_s": 90}


def refused(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    with pytest.raises(SystemExit) as stopped:
        main(["place", "links", *map(str, arguments)])
    assert stopped.value.code == 2
    return capsys.readouterr().err


def test_a_sweep_says_each_size_and_direction_and_writes_the_cluster(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    to, table = tmp_path / "cluster.json", tmp_path / "sweep.csv"
    files = ("--out", to, "--csv", table)
    found = json.loads(run(capsys, "place", "links", *TINY, *files, "--nominal", "128Gbit/s", "--json"))
    tables = found["sections"]["links"]["tables"]
    assert tables["sweep"]["size_bytes"] == [10**3, 10**5, 10**7] * 2
    assert tables["sweep"]["way"] == ["out"] * 3 + ["in"] * 3
    assert tables["sweep"]["repeats"] == [9] * 6
    for rate, share in zip(tables["fits"]["bytes_per_s"], tables["fits"]["nominal_share"], strict=True):
        assert 10**7 < rate < 10**13
        assert share == pytest.approx(rate / 16e9)
    assert len([*csv.reader(table.read_text().splitlines())]) == 7
    (link,) = [each.link for each in load_cluster(to).channels]
    out, into = tables["fits"]["bytes_per_s"]
    assert float(link.bytes_per_s) == pytest.approx(into, rel=1e-3)
    assert float(link.in_bytes_per_s or 0) == pytest.approx(out, rel=1e-3)


def test_the_links_of_a_file_are_replaced_and_a_drive_is_measured_beside(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    to = tmp_path / "cluster.json"
    content = {
        "devices": [{"name": "cpu", "count": 2, "device": OWN}],
        "links": [{"between": ["cpu*"], "link": "1kB/s"}],
    }
    to.write_text(json.dumps(content))
    links = ("--link", "host", "--link", "ssd", "--offload-dir", tmp_path)
    text = run(capsys, "place", "links", *TINY, *links, "--machine", to, "--out", to)
    assert "ssd" in text
    assert f"wrote {to}" in text.replace("\n", "")
    assert load_cluster(to).channels[0].link.bytes_per_s > 10**6
    assert json.loads(to.read_text())["devices"] == content["devices"]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("--sizes", "1e6,1e3"), "in ascending order"),
        (("--sizes", "1e3,1e3"), "in ascending order"),
        (("--sizes", "1e3"), "two sizes or more"),
        (("--sizes=-5,1e3",), "no size above 0"),
        (("--sizes", "0,1e3"), "no size above 0"),
        (("--sizes", "1e3,1e18"), "does not fit"),
        (("--repeats", "0"), "--repeats"),
        (("--nominal", "fast"), "no link is called"),
        (("--nominal", "0Gbit/s"), "no link is called"),
        (("--device", "warp"), "names no device"),
        (("--machine", "c.json"), "--out"),
        (("--out", "none/c.json"), "does not exist"),
        (("--out", "c.json", "--link", "ssd"), "needs the link host"),
        (("--out", "c.json", "--machine", "absent.json"), "absent.json"),
        (("--between", "a,b"), "--machine"),
    ],
)
def test_what_cannot_be_is_one_message_and_nothing_is_written(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    arguments: tuple[str, ...],
    text: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    said = refused(capsys, *arguments)
    assert text in said
    assert "Traceback" not in said
    assert not [*tmp_path.iterdir()]
