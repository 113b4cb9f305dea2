"""Every verb that has ``--machine``, with every description of a machine: an answer, or a line with what to give."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.command import called
from tests.graphs import path_of
from tests.marks import some_slow

STEP = str(path_of("mlp"))
HOST = {"name": "host", "link": "pcie3", "capacity_bytes": 128e9}
TIERS = [HOST, {"name": "ssd", "link": "nvme", "over": "host"}]
PAIR = [{"between": ["*"], "link": "25GB/s,2us"}]
FILES = {
    "mine.json": {"name": "mine", "fp32_tflops": 8, "memory_gbytes": 16, "memory_gbytes_per_s": 300},
    "one.json": {"devices": [{"device": "t4"}]},
    "g10.json": {"devices": [{"device": "a100-sxm-40gb", "memory_bytes": 40 * 2**30, "tiers": TIERS}]},
    "alike.json": {"devices": [{"name": "gpu", "count": 2, "device": "t4", "tiers": [HOST]}], "links": PAIR},
    "mixed.json": {"devices": [{"name": "big", "device": "l4"}, {"name": "old", "device": "t4"}], "links": PAIR},
    "graph.json": {
        "comm_channels": [{"bandwidth": 252, "latency_us": 45, "duplex": True}],
        "devices": [
            {
                "type": kind,
                "model": model,
                "clock": 600,
                "peak_gflops": 1500,
                "memory": 12,
                "neighbours": [{"device": other, "comm_channel": 0}],
            }
            for kind, model, other in (("cpu", "24 cores", 1), ("gpu", "K80", 0))
        ],
    },
}
ONE_OF = "write --machine {}. time, scale and place take several"
NAME_IT = "name one of its devices, as {}; they are "
NOT_ALIKE = "its devices are not alike, or not joined alike"
OF_ONE = {
    "8xh100-sxm": ONE_OF.format("h100-sxm"),
    "2x4xgh200": ONE_OF.format("gh200"),
    "alike.json": NAME_IT.format("alike.json:gpu0"),
    "mixed.json": NAME_IT.format("mixed.json:big"),
    "graph.json": NAME_IT.format("graph.json:gpu1"),
    "alike.json:gpu9": NAME_IT.format("alike.json:gpu0"),
    "none.json": "none.json",
}
"""What verbs that ask about one device say of a machine that is several, or none."""
OF_ALIKE = {
    "24GB": "24GB is a size, not a card",
    "mixed.json": NOT_ALIKE,
    "graph.json": NOT_ALIKE,
    "alike.json:gpu9": NAME_IT.format("alike.json:gpu0"),
    "none.json": "none.json",
}
"""The same of those that take several devices which are alike."""
TIMED = {**OF_ONE, "24GB": OF_ALIKE["24GB"]}
REFUSED = {
    "capture": OF_ONE,
    "check": {**OF_ALIKE, "local": "it takes machines of the catalogue and files, not local"},
    "compare": TIMED,
    "count": OF_ONE,
    "draw": OF_ONE,
    "fit": OF_ONE,
    "memory": OF_ONE,
    "metrics": TIMED,
    "plan": TIMED,
    "report": OF_ONE,
    "scale": OF_ALIKE,
    "time": OF_ALIKE,
    "place": {
        "24GB": OF_ALIKE["24GB"],
        "alike.json:gpu1": "a step is placed on all of a file: write --machine alike.json",
        "mixed.json:old": "a step is placed on all of a file: write --machine mixed.json",
        "graph.json:gpu1": "a step is placed on all of a file: write --machine graph.json",
        "none.json": "none.json",
    },
}
ALSO = {
    "capture": ("-o", "step.tide"),
    "check": ("--assert", "step_time < 1 h"),
    "compare": (STEP,),
    "draw": ("-o", "step.svg"),
    "plan": ("--budget", "100%", "--work-limit", "1000"),
    "place": ("--budget", "20", "--threads", "1"),
    "fit": ("--threads", "1"),
    "scale": ("--threads", "1"),
}
NAMES = ("t4", "24GB", "8xh100-sxm", "2x4xgh200", *FILES, "alike.json:gpu1", "mixed.json:old", "graph.json:gpu1")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, content in FILES.items():
        (tmp_path / name).write_text(json.dumps(content))
    return tmp_path


@pytest.mark.parametrize("verb", REFUSED)
def test_a_machine_that_a_verb_cannot_take_is_one_line_that_names_what_to_give(verb: str, folder: Path) -> None:
    for machine, said in REFUSED[verb].items():
        done = called(folder, verb, STEP, *ALSO.get(verb, ()), "--machine", machine)
        assert (done.returncode, done.stdout) == (2, ""), (machine, done.stderr)
        assert said in done.stderr, machine
        assert done.stderr.startswith("error: ")
        assert done.stderr.count("\n") == 1, done.stderr


@pytest.mark.parametrize("verb", some_slow(REFUSED, [verb for verb in REFUSED if verb != "count"]))
def test_every_other_machine_is_answered(verb: str, folder: Path) -> None:
    for machine in NAMES:
        if machine in REFUSED[verb]:
            continue
        nic = ("--nic", "50GB/s") if machine.startswith("2x") and verb != "check" else ()
        done = called(folder, verb, STEP, *ALSO.get(verb, ()), "--machine", machine, *nic)
        assert done.returncode in (0, 1), (machine, done.stderr)  # 1: an answer, too, that nothing fits
        assert "error" not in done.stderr
        assert "failed" not in done.stderr


def test_a_file_of_several_devices_stands_beside_other_machines(folder: Path) -> None:
    done = called(folder, "time", STEP, "--machine", "alike.json", "--machine", "t4", "--json")
    assert done.returncode == 0, done.stderr
    assert '"2 x T4 (alike)"' in done.stdout
