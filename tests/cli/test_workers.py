"""``--threads`` and ``--cluster``: spelled and explained alike by every verb that evaluates many points."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from scripts.option_tables import every_command, own_options, requests
from tensortide.cli import main
from tensortide.executors import LOCAL, SERIAL, Where
from tensortide.executors.request import WorkerRequest
from tensortide.request import options
from tensortide.studies.experiment.request import TrialsRequest
from tensortide.studies.placement.scores import score_all
from tests.cli.command import run
from tests.studies.placement.test_comparison import SUBJECT

VERBS = {
    *(("remat", name) for name in ("sweep", "ablation", "banishing", "accesses", "growth", "figures", "contenders")),
    ("fit",),
    ("formulas", "sweep"),
    ("scale",),
    ("place",),
    ("place", "compare"),
    ("place", "score"),
}


def test_every_sweep_has_the_same_two_options() -> None:
    names = {name for one in options(WorkerRequest) for name in one.names}
    assert names == {"--threads", "--cluster"}
    found = {path: requests(command) for path, command in every_command()}
    assert {path for path, kinds in found.items() if WorkerRequest in kinds} == VERBS
    others = {kind for kinds in found.values() for kind in kinds} - {
        WorkerRequest,
        TrialsRequest,
    }  # whose file has keys for them
    assert {name for kind in others for one in own_options(kind) for name in one.names} & names == {"--threads"}


def test_a_cluster_needs_ray(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(SystemExit) as ended:
        main(["remat", "growth", "--sizes", "4", "--policies", "lru", "--cluster", LOCAL])
    assert ended.value.code == 3
    assert capsys.readouterr().err == "error: a cluster needs Ray: pip install 'tensortide[cluster]'.\n"


@pytest.mark.slow
def test_verbs_print_the_same_on_a_cluster(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    growth = ("remat", "growth", "--sizes", "16,32", "--policies", "dtr,lru,size+large", "--json", "--quiet")
    alone = run(capsys, *growth, "--threads", 1)
    assert run(capsys, *growth, "--threads", 2) == alone
    save = tmp_path / "runs.jsonl"
    assert run(capsys, *growth, "--cluster", LOCAL, "--threads", 2, "--save", save) == alone
    assert len(save.read_bytes().splitlines()) == 1 + 7 * 3  # of 16 layers two budgets are the same


@pytest.mark.slow
@pytest.mark.parametrize("where", [Where(2), Where(2, cluster=LOCAL)])
def test_many_placements_are_scored_alike_side_by_side(tmp_path: Path, where: Where) -> None:
    for number in range(64):
        devices = {layer: 1 + (number >> place) % 2 for place, layer in enumerate(SUBJECT.net.order)}
        (tmp_path / f"{number:02}.json").write_text(json.dumps(devices))
    told: list[str] = []
    found = score_all(SUBJECT, [tmp_path], where, told.append)
    assert [(one.path, one.run.makespan) for one in found] == [
        (one.path, one.run.makespan) for one in score_all(SUBJECT, [tmp_path], SERIAL)
    ]
    assert told[-1] == "64 of 64 placements"
