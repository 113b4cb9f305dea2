"""``tensortide fit`` as a person calls it."""

from __future__ import annotations

import contextlib
import csv
import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from tensortide.cli import main
from tensortide.graph import load
from tests.graphs import path_of

CODE = """
import copy
import torch
from torch import nn


def workload(batch=4, width=32):
    model = nn.Sequential(*(nn.Sequential(nn.Linear(width, width), nn.Sigmoid()) for _ in range(2)))
    optimizer = torch.optim.AdamW(model.parameters())
    x = torch.randn(batch, width)

    def step():
        loss = model(x).sum()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.item()

    return step


def train():
    step = workload()
    best = copy.deepcopy(model.state_dict())
"""


@pytest.fixture
def target(tmp_path: Path) -> str:
    (tmp_path / "train.py").write_text(CODE)
    return f"{tmp_path}/train.py:workload"


def said(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """What the command prints, run in this process, without others that would import PyTorch."""
    capsys.readouterr()
    with contextlib.suppress(SystemExit):
        main([*arguments, *(("--threads", "1") if arguments[0] == "fit" else ())])
    return capsys.readouterr().out


def data(text: str) -> Any:
    return json.loads(text)["sections"]


@pytest.mark.slow
def test_the_answer_is_on_one_screen_and_the_same_as_data(
    target: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = said(capsys, "fit", target, "--machine", "h100-sxm", "-q", "--csv", str(tmp_path / "outcomes.csv"))
    assert len(text.splitlines()) < 60
    assert max(map(len, text.splitlines())) <= 100
    assert "fits H100-SXM-80GB" in text
    assert "largest batch: at least batch=" in text
    assert "train.py:24" in text  # the copy that it saves
    rows = {row["key"]: row for row in csv.DictReader((tmp_path / "outcomes.csv").read_text().splitlines())}
    assert int(rows["checkpoint"]["peak_bytes"]) > 0
    assert rows["loss"]["reason"] == "no cross entropy takes the product of a parameter"
    assert "No action saves" in text  # the workspace of libraries is nearly all of it


@pytest.mark.slow
def test_a_saved_step_has_the_verdict_that_a_report_has(
    target: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    saved = str(tmp_path / "step.tide")
    said(capsys, "capture", target, "--machine", "l4", "-o", saved, "-q")
    mine = data(said(capsys, "fit", saved, "--json", "-q"))["fit"]
    theirs = data(said(capsys, "report", saved, "--json", "-q"))["verdict"]
    assert mine["facts"]["peak_bytes"] == theirs["facts"]["peak_bytes"]
    assert mine["facts"]["reserved_bytes"] == theirs["facts"]["reserved_bytes"]
    for column in ("device", "usable_bytes", "fits"):
        assert mine["tables"]["devices"][column] == theirs["tables"]["devices"][column]
    assert load(saved).meta.machine == "L4"
    assert "fits L4" in said(capsys, "fit", saved, "-q")


@pytest.mark.slow
def test_several_machines_have_a_row_each_and_the_whole_answer(target: str, capsys: pytest.CaptureFixture[str]) -> None:
    second = data(said(capsys, "fit", target, "--machine", "l4", "--json", "-q"))["fit"]
    found = data(said(capsys, "fit", target, "--machine", "t4", "--machine", "l4", "--json", "-q"))
    rows = found["machines"]["tables"]["machines"]
    assert rows["machine"] == ["T4", "L4"]
    assert rows["peak_bytes"] == [found[f"fit_{number}"]["facts"]["peak_bytes"] for number in (1, 2)]
    assert found["fit_2"]["facts"] == second["facts"]
    assert found["fit_2"]["tables"]["outcomes"] == second["tables"]["outcomes"]


def test_what_is_the_same_on_each_machine_is_told_once(capsys: pytest.CaptureFixture[str]) -> None:
    text = said(capsys, "fit", str(path_of("mlp_a100")), "--machine", "t4", "--machine", "l4", "--memory", "1GiB")
    assert text.count("GPU size") == text.count("of the peak, ") == 1
    assert text.count("fits into 1.00 GiB: needs ") == 2
    head = text.partition("\n\n")[2]
    assert "Largest batch" not in head
    assert "Cheapest set" not in head
    found = data(said(capsys, "fit", str(path_of("mlp_a100")), "--machine", "t4", "--machine", "l4", "--json"))
    assert all("devices" in found[f"fit_{number}"]["tables"] for number in (1, 2))
    assert found["machines"]["tables"]["machines"]["batch"] == [None, None]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("mlp", "--memory", "0"), "--memory takes a whole number from 1, not 0"),
        (("mlp", "--memory", "lots"), "--memory: not a number of bytes: 'lots'"),
        (("mlp", "--memory", "60"), "60MiB, or 60GiB?"),
        (("mlp", "--memory", "60%"), "--memory: takes bytes, such as 24GiB or 512MiB, and 60% is a part"),
        (("mlp", "--machine", "0GB"), "the size of a card is from 1GB"),
        (("mlp", "--machine", "24GB", "--machine", "24 gib"), "--machine 24GB is given twice"),
        (("mlp", "--machine", "24"), "no device is called '24'.\nNear names: 24GB, "),
        (("mlp", "--machine", "h1000"), "no device is called 'h1000'"),
        (("mlp", "--machine", "h100", "--strict"), "ambiguous"),
        (("mlp", "--machine", "t4", "--machine", "T4"), "--machine T4 is given twice"),
        (("nothing.tide",), "nothing.tide"),
    ],
)
def test_a_mistake_is_one_message(arguments: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exited:
        main(["fit", *arguments])
    heard = capsys.readouterr()
    assert exited.value.code == 2
    assert message in heard.err
    assert "Traceback" not in heard.err
    assert heard.out == ""


def test_the_machine_of_the_command_is_a_cpu_with_the_memory_that_is_given(
    capsys: pytest.CaptureFixture[str],
) -> None:
    text = said(capsys, "fit", str(path_of("mlp")), "--machine", "local", "--memory", "60MiB")
    assert "one training step on cpu" in text
    assert "fits into 60.00 MiB" in text


@pytest.mark.parametrize(
    ("options", "words", "time"),
    [
        (("--machine", "24GB"), "fits a 24GB GPU: needs ", None),
        (("--memory", "24GiB"), "fits into 24.00 GiB: needs ", None),
        (("--machine", "24gb", "--memory", "20GiB"), "fits a 24GB GPU: needs ", None),
        (("--memory", "24GiB", "--machine", "l4"), "fits into 24.00 GiB: needs ", "L4"),
    ],
    ids=range(4),
)
def test_only_a_card_that_is_named_has_times(
    options: tuple[str, ...], words: str, time: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    """On a saved step, which is captured once."""
    text = said(capsys, "fit", str(path_of("mlp")), *options)
    assert words in text
    assert (f"on {time}" in text) is (time is not None)
    assert ("No time: " in text) is (time is None)
    assert (re.search(r"^24 GB .* \d+ us$", text, re.MULTILINE) is not None) is (time is not None)


@pytest.mark.parametrize(
    ("verb", "status"),
    [("report", 0), ("memory", 0), ("count", 0), ("time", 2), ("metrics", 2), ("scale", 2), ("plan", 2)],
)
def test_verbs_take_a_size_or_say_that_they_need_a_card(
    verb: str, status: int, capsys: pytest.CaptureFixture[str]
) -> None:
    more = {"plan": ("--budget", "60%"), "scale": ("--devices", "2")}.get(verb, ())
    with pytest.raises(SystemExit) as exited:
        main([verb, str(path_of("mlp_a100")), "--machine", "24GB", *more])
    heard = capsys.readouterr()
    assert (exited.value.code or 0) == status
    assert ("24GB is a size, not a card; rtx4090 is one" in heard.err) is (status == 2)
    assert "Traceback" not in heard.err


def test_a_step_that_is_unsure_ends_with_4_and_says_what_would_decide(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exited:
        main(["fit", str(path_of("mlp_a100")), "--memory", "20MiB", "--threads", "1"])
    text = " ".join(capsys.readouterr().out.split())
    assert exited.value.code == 4
    assert "unsure in 20.00 MiB: needs 16.80 to 22.00 MiB: 3.20 MiB to spare to 2.00 MiB too much" in text
    assert "What would decide it: - two steps on that GPU or a larger one" in text
    assert "print(torch.cuda.max_memory_reserved() <= 20971520)" in text


@pytest.mark.slow
def test_the_command_to_type_next_makes_it_fit(capsys: pytest.CaptureFixture[str]) -> None:
    sized = ("--set", "layers=1", "--set", "batch=65536", "--machine", "24GB", "--memory", "256MiB")
    text = said(capsys, "fit", "mlp", *sized)
    assert "does not fit a 24GB GPU" in text
    found = shlex.split(next(line for line in text.splitlines() if line.startswith("next: ")).removeprefix("next: "))
    assert found[:3] == ["tensortide", "fit", "mlp"]
    assert "fits a 24GB GPU" in said(capsys, *found[1:])
