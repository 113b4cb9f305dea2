"""What is wrong with trials is told before any runs, with the file, the key and its value."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tensortide.errors import RequestError
from tensortide.studies.experiment.checks import check
from tensortide.studies.experiment.grammar import experiment_of

TRAIN = "raise AssertionError('a check runs nothing of the user')\ndef net(batch=1): ...\n"


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder with a file of the user's."""
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text(TRAIN)


@pytest.mark.parametrize(
    ("run", "error"),
    [
        (
            {"workload": "-- python train.py", "mode": "live"},
            "workload = -- python train.py, mode = live: train.py is a script, which has no step to call: a live trial",
        ),
        ({"workload": "train.py:nett"}, "workload = train.py:nett, mode = simulated: train.py has no 'nett'; did you"),
        ({"workload": "trian.py:net"}, "there is no file trian.py"),
        ({"workload": "step.tide"}, "step.tide"),
        ({"workload": "mpl"}, "no example 'mpl'; did you mean mlp?"),
        (
            {"workload": "mlp", "set": {"bacth": [1, 2]}},
            "set = {'bacth': 1}, workload = mlp: mlp has no hyperparameter 'bacth'; did you mean batch?",
        ),
        (
            {"workload": "mlp", "machine": "box.json"},
            "machine = box.json: box.json: cannot be read as a machine: No such file",
        ),
        ({"workload": "mlp", "machine": "box.jsn"}, "machine = box.jsn: no device is called 'box.jsn'"),
        (
            {"workload": "mlp", "policy": "train.py:mine", "budget": 0.5},
            "policy = train.py:mine: train.py has no 'mine'; there are: net",
        ),
        ({"workload": "mlp", "policy": "nix.plan.json"}, "policy = nix.plan.json: cannot read nix.plan.json: No such"),
        ({"workload": "mlp", "policy": "./"}, "policy = ./: cannot read ./: Is a directory"),
        ({"workload": "json:nope"}, "workload = json:nope, mode = simulated: json has no 'nope'; there are: "),
        ({"workload": "mlp", "device": "cuda:two"}, "device = cuda:two: a step is captured for and"),
        ({"workload": "train.py:net", "device": ["cuda:1", "banana"]}, "device = banana: a step is captured for and"),
    ],
)
def test_what_no_trial_could_run_with_is_an_error(run: dict[str, Any], error: str) -> None:
    with pytest.raises(RequestError) as raised:
        check(experiment_of({"runs": [run]}), "x.toml")
    assert str(raised.value).startswith("x.toml: ")
    assert error in str(raised.value)
    assert "\n" not in str(raised.value)


def test_what_may_run_is_no_error_and_nothing_runs() -> None:
    runs = [
        {"workload": "train.py:net", "set": {"batch": 2}, "mode": ["live", "simulated"]},
        {"workload": "-- python train.py"},
        {
            "workload": "mlp",
            "set": {"batch": 2},
            "machine": ["rtx3090", "local"],
            "policy": "train.py:net",
            "budget": 1,
        },
    ]
    check(experiment_of({"runs": runs}), "x.toml")
