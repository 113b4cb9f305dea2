"""The command to type after a fit, which works as it is printed."""

from __future__ import annotations

import random
import shlex
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from tensortide.graph import load
from tensortide.parallelism import Degrees, per_rank
from tensortide.reports.blocks import Note
from tensortide.reports.sections.fit import section
from tensortide.studies.fit import Fit, Subject, fit
from tensortide.studies.fit.actions import Action
from tensortide.studies.fit.following import following
from tensortide.studies.fit.largest import Largest
from tensortide.studies.fit.results import Gain, Outcome
from tensortide.studies.fit.verdict import Fits
from tensortide.targets.requests import CaptureRequest
from tensortide.timing.cards import of_bytes
from tensortide.timing.catalogue import device
from tensortide.units import parse_bytes
from tests.graphs import path_of
from tests.graphs.files import stored
from tests.marks import some_slow

TYPED = CaptureRequest(set=("batch=16", "width=a b"), machines=("t4",), ranks=2, compiled=True)


def found(limit_bytes: int, largest: int = 0) -> Fit:
    subject = Subject("mlp", load(path_of("mlp_a100")), device("T4"), of_bytes(limit_bytes), why_not="a file")
    return msgspec.structs.replace(fit(subject), largest=Largest("batch", largest, 1, largest + 1, 2, 3))


@pytest.mark.parametrize(
    ("limit", "largest", "words"),
    [
        (2**40, 7, ["report", "mlp"]),
        (2**20, 7, ["fit", "mlp"]),
    ],
)
def test_the_command_is_what_was_typed_with_what_changes(limit: int, largest: int, words: list[str]) -> None:
    typed = shlex.split(following(found(limit, largest), "mlp", TYPED, None))
    assert typed[:3] == ["tensortide", *words]
    assert ("batch=7" in typed) is (words[0] == "fit")
    assert ("batch=16" in typed) is (words[0] == "report")
    assert {"width=a b", "--machine", "t4", "--ranks", "2", "--compiled"} <= {*typed[3:]}


@pytest.mark.parametrize("memory", [24 * 2**30, 10**9 + 1])
def test_memory_is_that_which_was_given(memory: int) -> None:
    typed = shlex.split(following(found(2**20, 7), "mlp", CaptureRequest(), memory))
    assert typed == [
        *("tensortide", "fit", "mlp", "--set", "batch=7"),
        *("--memory", "24GiB" if memory % 2**30 == 0 else f"{memory}B"),
    ]


def test_a_script_comes_last() -> None:
    script: dict[str, Any] = {"target": "-- python train.py --lr 1", "capture": replace(TYPED, set=()), "memory": None}
    assert following(found(2**40), **script) == (
        "tensortide report --machine t4 --ranks 2 --compiled -- python train.py --lr 1"
    )


def test_all_stages_follow_one_of_a_pipeline() -> None:
    stage = per_rank(stored("gpt2"), Degrees(pipeline=2)).graphs[0]
    study = fit(Subject("train.py", stage, device("T4"), of_bytes(2**40), why_not="a script"))
    asked = CaptureRequest(machines=("t4",), rank=3)
    script = "-- torchrun --nproc_per_node 4 train.py"
    assert following(study, script, asked, None) == f"tensortide fit --machine t4 --all-stages {script}"
    limited = following(study, script, CaptureRequest(), 24 * 2**30)
    assert limited == f"tensortide fit --all-stages --memory 24GiB {script}"
    assert following(study, "rank.tide", asked, None).startswith("tensortide report rank.tide")


@pytest.mark.parametrize(
    ("options", "next_"),
    [
        ("--batch-size 128 --lr 1", "--batch-size 64 --lr 1"),
        ("--per_device_train_batch_size=9", "--per_device_train_batch_size=4"),
        ("-b 2", "-b 1"),
        ("--batch-size 1", ""),
        ("--batches 8", ""),
        ("--lr 1", ""),
    ],
)
def test_a_script_that_does_not_fit_is_tried_with_half_its_batch(options: str, next_: str) -> None:
    said = following(found(2**20), f"-- python train.py {options}", CaptureRequest(machines=("t4",)), None)
    assert said == (f"tensortide fit --machine t4 -- python train.py {next_}" if next_ else "")


@pytest.mark.parametrize(("fits", "batch"), [("fits", 4), ("unsure", 7), ("too large", 7)])
def test_settings_follow_that_are_known_to_fit(fits: Fits, batch: int) -> None:
    study = found(2**20, 7)
    action = Action("smaller", "batch of 4", "--set batch=4", "batch", settings={"batch": 4})
    tried = Outcome(action, Gain(1, 1, 1, fits, study.base.peak_bytes - 1, 0, 0.0))
    said = following(msgspec.structs.replace(study, outcomes=(tried,)), "mlp", CaptureRequest(), None)
    assert said == f"tensortide fit mlp --set batch={batch}"


def test_nothing_follows_where_no_setting_makes_it_fit() -> None:
    assert following(found(2**20), "mlp", TYPED, None) == ""


def test_more_memory_follows_where_one_op_needs_more_than_there_is() -> None:
    study = found(2**10)
    words = shlex.split(following(study, "mlp", CaptureRequest(), 2**10))
    assert words[:4] == ["tensortide", "fit", "mlp", "--memory"]
    assert found(parse_bytes(words[4])).fits == "fits"


@pytest.mark.parametrize("dice", some_slow(range(12), range(4, 12)))
def test_words_and_statuses_agree_at_every_boundary(dice: int) -> None:
    rolled = random.Random(dice)
    graph = load(path_of("mlp_a100"))
    base = fit(Subject("mlp", graph, device("T4"), of_bytes(2**40), why_not="a file")).base
    peak, reserved = base.peak_bytes, base.reserved_bytes
    usable = rolled.choice([reserved, reserved - 1, peak, peak - 1, rolled.randrange(1, 2 * reserved)])
    study = fit(Subject("mlp", graph, device("T4"), of_bytes(usable), why_not="a file"))
    words, status = ("fits into", 0) if usable >= reserved else ("unsure in", 4) if usable >= peak else ("does not", 1)
    assert study.status == status
    headline = next(block.text for block in section(study).blocks if isinstance(block, Note))
    assert headline.startswith(words)
    assert study.verdict.asked is not None
    assert study.verdict.asked.fits == study.fits


@pytest.mark.parametrize(
    ("memory", "words"),
    [
        (None, ["--machine", "A100-SXM-80GB"]),
        (24 * 2**30, ["--machine", "24GiB"]),
        (10**9 + 1, ["--device", "cuda"]),
    ],
)
def test_a_report_is_of_the_gpu_that_nobody_named(memory: int | None, words: list[str]) -> None:
    study = found(2**40)
    graph = study.subject.graph
    captured = msgspec.structs.replace(graph, meta=msgspec.structs.replace(graph.meta, captured_on="fake"))
    step = msgspec.structs.replace(study, subject=replace(study.subject, graph=captured))
    assert shlex.split(following(step, "mlp", CaptureRequest(), memory)) == ["tensortide", "report", "mlp", *words]
