"""Configuration files of DTR's experiments, in the shapes of its four: read as they are."""

from __future__ import annotations

import inspect
import json
import math
from pathlib import Path
from typing import Any

import pytest

from tensortide.errors import RequestError
from tensortide.examples import find
from tensortide.studies.experiment import request
from tensortide.studies.experiment.dtr_files import MODELS, dtr_experiment
from tensortide.studies.experiment.grammar import Experiment, read_experiment
from tensortide.studies.experiment.trials import NONE
from tests.conftest import ROOT

HEAD: dict[str, Any] = {
    "active": True,
    "save_logs": False,
    "log_dest": "~/logs",
    "dry_run": 2,
    "dtr_torch_cmd": "~/venv/bin/python3",
    "n_inputs": 1,
    "n_reps": 4,
    "note_on_report_errors": "a remark",
    "report_errors": True,
    "set_seed": True,
    "seed": 1,
    "notify": [],
}
LSTM = {"mem_dim": 30, "in_dim": 10, "input_size": 7}
RATIOS = [1.0, 0.6, 0.3]


def shaped(commands: dict[str, Any], default: dict[str, Any], **head: Any) -> dict[str, Any]:
    return {**HEAD, "models": [*commands], "dtr_settings": {"default": default, **commands}, **head}


RUN_GRAPHS = shaped(
    {
        "resnet32": [{"type": "baseline"}, {"type": "dtr", "kind": "ratio", "ratio": RATIOS, "timeout": 50}],
        "lstm": [
            {"type": "baseline", "batch_size": 8, "extra_params": LSTM},
            {"type": "dtr", "kind": "ratio", "ratio": RATIOS, "batch_size": 8, "extra_params": LSTM},
        ],
    },
    {"batch_size": 32},
)
GET_LOG = shaped(
    {"unroll_gan": [{"type": "dtr", "kind": "fixed", "memory_budget": [12e9], "timeout": 60}]},
    {"batch_size": 32},
    save_logs=True,
)
LARGE_INPUTS = shaped(
    {"unet": [{"type": "dtr", "kind": "fixed", "memory_budget": [10.8e9, 9.6e9], "batch_size": 90}]},
    {"batch_size": 32, "timeout": 500},
    n_inputs=3,
)
ENCODERS = shaped(
    {
        "lstm_encoder": [{"type": "dtr", "kind": "fixed", "memory_budget": 12e9}],
        "treelstm_old": [{"type": "dtr", "kind": "fixed", "memory_budget": [-1], "n_reps": 9, "n_inputs": 2}],
    },
    {"batch_size": 32, "timeout": 100, "use_sampling": True, "ignore_small_tensors": True},
    save_logs=True,
)


def read(tmp_path: Path, table: Any) -> Experiment:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(table))
    return read_experiment(path)


def test_ratios_over_models_with_baselines(tmp_path: Path) -> None:
    found = read(tmp_path, RUN_GRAPHS).trials
    assert [(one.workload, one.policy, one.budget_text) for one in found] == [
        (workload, policy, budget)
        for workload in ("resnet32", "dtr_lstm")
        for policy, budget in ((NONE, ""), ("dtr-eq", "100 %"), ("dtr-eq", "60 %"), ("dtr-eq", "30 %"))
    ]
    assert {(one.mode, one.repeats, one.dropped, one.steps, one.seed) for one in found} == {("live", 4, 2, 1, 1)}
    assert found[-1].set == {"hidden": 30, "inputs": 10, "seq": 8, "batch": 7}
    assert found[0].set == {"batch": 32}
    assert (found[0].timeout, found[1].timeout) == (None, 50)


def test_logs_of_fixed_budgets(tmp_path: Path) -> None:
    baseline, trial = read(tmp_path, GET_LOG).trials
    assert trial.save_log
    assert not baseline.save_log
    assert trial.workload == "unroll_gan"
    assert trial.budget is not None
    assert trial.budget.nbytes == 12_000_000_000


def test_each_input_is_a_trial_of_its_own(tmp_path: Path) -> None:
    found = [one for one in read(tmp_path, LARGE_INPUTS).trials if one.policy != NONE]
    assert [(one.seed, one.set["batch"], one.timeout) for one in found] == [(s, 90, 500) for s in (1, 2, 3)] * 2


def test_single_values_defaults_and_no_limit(tmp_path: Path) -> None:
    found = [one for one in read(tmp_path, ENCODERS).trials if one.policy != NONE]
    assert [(one.workload, one.policy, one.budget_text, one.repeats, one.seed) for one in found] == [
        ("lstm_encoder", "dtr-eq+sqrt+large", "11.18 GiB", 4, 1),
        ("treelstm_old", "dtr-eq+sqrt+large", "unlimited", 9, 1),
        ("treelstm_old", "dtr-eq+sqrt+large", "unlimited", 9, 2),
    ]


def command(**keys: Any) -> dict[str, Any]:
    return shaped({"lstm": [{"type": "dtr", "kind": "ratio", "ratio": [1.0, 0.5], **keys}]}, {"batch_size": 2})


def test_sampling_ends_below_a_ratio(tmp_path: Path) -> None:
    table = command(use_sampling=True, no_sampling_below_ratio=0.7)
    policies = {one.budget_text: one.policy for one in read(tmp_path, table).trials}
    assert policies == {"": NONE, "100 %": "dtr-eq+sqrt", "50 %": "dtr-eq"}


def test_parameters_unfold_and_tell_of_attempts(tmp_path: Path) -> None:
    extra = {"mem_dim": [1, 2], "retry_on_error": True, "max_retries": 3, "attempt_timeout": 9}
    found = [one for one in read(tmp_path, command(extra_params=extra)).trials if one.policy != NONE]
    assert [(one.set["hidden"], one.retries, one.timeout) for one in found] == [(1, 3, 9), (2, 3, 9)] * 2


def test_kinds_are_ignored_and_errors_end_it(tmp_path: Path) -> None:
    table = {**RUN_GRAPHS, "models": ["lstm"], "ignore_kind": ["ratio"], "report_errors": False}
    found = read(tmp_path, table)
    assert [one.policy for one in found.trials] == [NONE]
    assert found.stop_on_error


NAMES = "resnet20 resnet32 resnet44 resnet56 resnet110 resnet1202 tv_resnet18 tv_resnet34 tv_resnet50 tv_resnet101 "
NAMES += "tv_resnet152 tv_densenet121 tv_densenet161 tv_densenet169 tv_densenet201 densenet100 inceptionv3 inceptionv4 "
NAMES += "unet lstm lstm_encoder gru gru_encoder treelstm treelstm_old transformer transformer_encoder unroll_gan"


def test_every_name_of_dtr_is_a_preset_and_its_parameters_are_settings(tmp_path: Path) -> None:
    assert sorted(NAMES.split()) == sorted(MODELS)
    keys = {name: {*model.renamed} - {"batch_size"} for name, model in MODELS.items()}
    commands = {
        name: [{"type": "dtr", "memory_budget": -1, "batch_size": 6, "extra_params": dict.fromkeys(own, 6)}]
        for name, own in keys.items()
    }
    found = [one for one in read(tmp_path, shaped(commands, {})).trials if one.policy != NONE]
    assert len(found) == 28
    for name, trial in zip(commands, found, strict=True):
        settings = inspect.signature(find(trial.workload).load()).parameters
        assert set(trial.set) <= set(settings), name
        assert len(trial.set) == 1 + len({MODELS[name].renamed[key] for key in keys[name]})


@pytest.mark.parametrize(
    ("name", "extra"),
    [
        ("resnet32", {"batch_size": 56, "height": 224, "width": 224}),
        ("tv_densenet121", {"batch_size": 84, "height": 224, "width": 224}),
        ("treelstm", {"batch_size": 9, "in_dim": 100, "mem_dim": 300, "input_size": 640}),
        ("lstm", {"batch_size": 256, "mem_dim": 1700, "in_dim": 512, "input_size": 512}),
        ("resnet1202", {"batch_size": 64}),
        ("inceptionv4", {"batch_size": 64}),
        ("transformer", {"batch_size": 10, "input_seq_length": 512}),
        ("unroll_gan", {"batch_size": 512, "d_hid": 2048, "g_hid": 2048, "g_inp": 4096, "unrolled_steps": 60}),
    ],
)
def test_presets_have_the_sizes_of_published_commands(name: str, extra: dict[str, Any]) -> None:
    usual = inspect.signature(find(MODELS[name].workload).load()).parameters
    names = {"batch_size": "batch", **MODELS[name].renamed}
    assert {key: usual[names[key]].default for key in extra} == extra


def test_what_has_no_effect_is_told(tmp_path: Path) -> None:
    notes = read(tmp_path, {**GET_LOG, "notify": ["me"]}).notes
    assert [note.partition(":")[0] for note in notes] == ["dtr_torch_cmd", "notify", "log_dest"]


@pytest.mark.parametrize(
    ("table", "error"),
    [
        ({**HEAD, "models": []}, "is no configuration of DTR"),
        (shaped({}, {}, active=False), "active: the experiment is switched off"),
        (shaped({}, {}, modles=[]), "there is no key 'modles'; did you mean models?"),
        (shaped({}, {}, models=["lstm"]), r"dtr_settings.lstm: there is no list of commands"),
        (
            command(memory_budgt=1),
            r"dtr_settings.lstm\[0\]: there is no key 'memory_budgt'; did you mean memory_budget",
        ),
        (command(kind="fixed"), r"dtr_settings.lstm\[0\]: a command of kind fixed needs a memory_budget"),
        (command(extra_params={"use_sampling": True}), r"lstm\[0\].extra_params: use_sampling has no effect here"),
        (
            command(extra_params={"mem_dm": 1}),
            r"dtr_settings.lstm\[0\].extra_params: lstm has no parameter 'mem_dm'; did you mean mem_dim",
        ),
        (
            shaped({"resnet20": [{"type": "baseline", "extra_params": {"height": 1, "width": 2}}]}, {}),
            r"resnet20\[0\].extra_params: width is 2, and image 1 already",
        ),
        (command(type="dtrr"), r"dtr_settings.lstm\[0\].type: 'dtrr' is none of its values: baseline, dtr"),
        (command(kind="fixed", memory_budget=math.inf), r"lstm\[0\].memory_budget: inf is no number of anything"),
        (command(memory_budget=1, n_inputs=10**8), "dtr_settings: more than 10,000 trials"),
        (command(batch_size=[*range(999)], n_reps=[*range(999)]), r"lstm\[0\]: more than 10,000 trials"),
        (command(ratio=[]), r"lstm\[0\].ratio: no trial comes of an empty list"),
        (command(n_inputs=0), r"lstm\[0\].n_inputs: "),
        (shaped({}, {}, ignore_kind=["ratoi"]), r"ignore_kind\[0\]: Invalid enum value 'ratoi'"),
    ],
)
def test_an_error_names_the_file_and_the_place(table: dict[str, Any], error: str, tmp_path: Path) -> None:
    with pytest.raises(RequestError, match=error) as raised:
        read(tmp_path, table)
    assert str(raised.value).startswith(str(tmp_path / "config.json"))


def test_the_file_of_the_page_is_read(tmp_path: Path) -> None:
    page = (ROOT / "docs/experiments.md").read_text()
    text = page.partition("<!-- dtr -->")[2].partition("```json\n")[2].partition("```")[0]
    found = dtr_experiment(tmp_path / "x.json", text).trials
    assert [(one.workload, one.policy, one.budget_text) for one in found] == [
        ("resnet32", "none", ""),
        ("resnet32", "dtr-eq+sqrt", "80 %"),
        ("resnet32", "dtr-eq+sqrt", "50 %"),
        ("dtr_treelstm", "none", ""),
        ("dtr_treelstm", "dtr-eq+sqrt", "953.7 MiB"),
    ]


def test_what_has_no_effect_is_told_before_anything_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    monkeypatch.setattr(request.LOG, "info", lambda text, *values: told.append(text % values))
    table = {"models": ["mlp"], "notify": ["me"], "dtr_settings": {"mlp": [{"type": "baseline"}]}}
    (tmp_path / "x.json").write_text(json.dumps(table))
    request.answer(request.TrialsRequest(target=tmp_path / "x.json", out=tmp_path / "out", dry_run=True))
    assert len(told) == 1
    assert told[0].startswith("notify: nobody is told (me)")
