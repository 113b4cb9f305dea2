"""``tensortide run --compiled``: a plan as one program, beside ordinary steps."""

from __future__ import annotations

import json

import pytest

from tests.cli.test_run import output

SETTINGS = {"batch": 4, "seq": 16, "hidden": 32, "layers": 1, "heads": 2, "vocab": 64, "positions": 16}
STEP = ["gpt2", *(f"--set={key}={value}" for key, value in SETTINGS.items()), "--compiled", "--steps", "1"]
SGD = [*STEP, "--set", "optimizer=sgd"]


def test_a_step_runs_by_a_program_with_the_same_results(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, err = output(capsys, *SGD, "--budget", "1GiB", "--json")
    assert (status, err) == (0, "")
    facts = json.loads(out)["sections"]["run"]["facts"]
    assert facts["results"] == "equal"
    assert abs(facts["planned_peak_bytes"] - facts["peak_bytes"]) < 64
    assert facts["recomputations"] == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((*STEP, "--budget", "1GiB"), "reads the value of a tensor"),
        ((*SGD, "--budget", "1GiB", "--compare"), "a program runs a plan without a policy"),
    ],
)
def test_what_cannot_be_is_one_error(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], message: str
) -> None:
    status, out, err = output(capsys, *arguments)
    assert status != 0
    assert message in " ".join((out + err).split())
    assert "Traceback" not in out + err
