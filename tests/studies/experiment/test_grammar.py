"""Files of experiments: lists are a product, trials have stable and distinct keys, errors name file and key."""

from __future__ import annotations

import math
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scripts.experiment_keys import PAGE, page
from tensortide.errors import RequestError
from tensortide.replays.remat.budgets import Budget
from tensortide.studies.experiment.grammar import Head, experiment_of, read_experiment, trial_of, unfolded
from tensortide.studies.experiment.trials import NONE, RIVALS, Trial
from tensortide.timing.durations import beside
from tests.graphs import path_of

SAVED_MODEL = Path(__file__).parents[2] / "data/importers/savedmodel/mlp"

AXES: dict[str, list[Any]] = {
    "workload": ["mlp", "gpt2", "lstm"],
    "mode": ["simulated", "live"],
    "policy": ["dtr-eq", "lru", "msps", "random:3"],
    "budget": [0.9, "50%", "8GiB", 12e9],
    "timeout": [1, 2],
}
runs = st.fixed_dictionaries(
    {name: st.lists(st.sampled_from(values), min_size=1, max_size=2, unique=True) for name, values in AXES.items()},
    optional={
        "set": st.fixed_dictionaries({"batch": st.lists(st.integers(1, 9), min_size=1, max_size=2, unique=True)})
    },
)


@given(runs)
@pytest.mark.property
def test_lists_unfold_as_a_product_in_a_fixed_order(run: dict[str, Any]) -> None:
    found = [*unfolded(run)]
    sizes = [len(value) for name, value in run.items() if name != "set"]
    batches = run.get("set", {}).get("batch", [None])
    assert len(found) == math.prod(sizes) * len(batches)
    assert len({repr(one) for one in found}) == len(found)
    shuffled = dict(reversed([*run.items()]))
    assert [*unfolded(shuffled)] == found
    assert [one["workload"] for one in found] == sorted((one["workload"] for one in found), key=run["workload"].index)


@given(runs)
@pytest.mark.property
def test_each_trial_is_there_once_after_its_baseline(run: dict[str, Any]) -> None:
    trials = experiment_of({"runs": [run, run]}).trials
    keys = [trial.key for trial in trials]
    assert len(set(keys)) == len(keys)
    for trial in trials:
        assert trial.policy == NONE or keys.index(trial.baseline.key) < keys.index(trial.key)
    wanted = {
        (one["workload"], one["mode"], one["policy"], str(one["budget"]), str(one.get("set"))) for one in unfolded(run)
    }
    assert len([trial for trial in trials if trial.policy != NONE]) == len(wanted)


def test_keys_are_the_same_in_another_process_and_do_not_depend_on_order() -> None:
    one = trial_of({"workload": "mlp", "set": {"a": 1, "b": 2}, "policy": "lru", "budget": 0.5}, "x", "")
    two = trial_of({"budget": "50%", "policy": "lru", "set": {"b": 2, "a": 1}, "workload": "mlp"}, "x", "")
    code = (
        "from tensortide.studies.experiment.grammar import trial_of\n"
        "print(trial_of({'workload': 'mlp', 'set': {'a': 1, 'b': 2}, 'policy': 'lru', 'budget': 0.5}, 'x', '').key)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert {one.key, two.key} == {done.stdout.strip()}


@pytest.mark.parametrize(
    "words", [{"workload": "FILE:step"}, {"workload": "-- python FILE --lr 1"}, {"machine": "FILE"}]
)
def test_a_key_follows_the_files_that_a_trial_names(words: dict[str, str], tmp_path: Path) -> None:
    file = tmp_path / "train.py"
    file.write_text("def step(): ...")
    named = {name: text.replace("FILE", str(file)) for name, text in words.items()}
    made = {"workload": "mlp", **named}
    trial = Trial(**made)  # type: ignore[arg-type]
    before = trial.key, trial.baseline.key
    file.write_text("def step(): return 1")
    assert (trial.key, trial.baseline.key) == before
    assert Trial(**made).key != before[0]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "file", ["packed/inner/train.py", "packed/inner/train/__init__.py", "apart/packed/inner/train.py"]
)
@pytest.mark.parametrize(
    "words",
    [
        {"workload": "packed.inner.train:step"},
        {"workload": "-- python -m packed.inner.train --lr 1"},
        {"policy": "packed.inner.train:Mine.policy", "budget": Budget(nbytes=8)},
    ],
)
def test_a_key_follows_the_modules_that_a_trial_names(
    words: dict[str, Any], file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path / "apart")
    path = tmp_path / file
    path.parent.mkdir(parents=True)
    for package in tmp_path.glob("**/packed"):
        (package / "__init__.py").write_text("raise SystemExit('nor of this')")
    path.write_text("raise SystemExit('none of it runs')")
    before = Trial(**{"workload": "mlp", **words}).key
    path.write_text("raise SystemExit('still not')")
    assert Trial(**{"workload": "mlp", **words}).key != before


def test_a_key_follows_the_durations_beside_a_saved_step_and_the_files_in_a_folder(tmp_path: Path) -> None:
    graph, model, other = tmp_path / "step.tide", shutil.copytree(SAVED_MODEL, tmp_path / "model"), tmp_path / "other"
    shutil.copy(path_of("mlp_activations"), graph)
    other.mkdir()
    for workload, file, follows in (
        (graph, beside(graph), True),
        (model, model / "variables/variables.index", True),
        (other, other / "results of a workload with this name", False),
    ):
        before = Trial(workload=str(workload)).key
        file.parent.mkdir(exist_ok=True)
        file.write_text("others")
        assert (Trial(workload=str(workload)).key != before) == follows


def test_a_package_that_is_run_is_named_by_its_main_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "packed").mkdir()
    keys = set()
    for version in ("1", "2"):
        (tmp_path / "packed/__main__.py").write_text(version)
        keys.add(Trial(workload="-- python -m packed").key)
    assert len(keys) == 2


def test_what_has_no_effect_makes_no_other_trial() -> None:
    base = {"workload": "mlp", "policy": [NONE, "checkpoint"], "budget": [0.5, 0.7], "repeats": [1, 2], "limit": [2, 3]}
    assert len(experiment_of({"runs": [base]}).trials) == 2
    assert len(experiment_of({"runs": [{**base, "mode": "live"}]}).trials) == 4
    again = Trial(workload="mlp", timeout=3, retries=4)
    assert again.key == Trial(workload="mlp").key


def test_defaults_are_taken_where_a_run_has_no_value_settings_one_by_one() -> None:
    table = {
        "defaults": {"mode": "live", "repeats": 3, "set": {"batch": 4, "hidden": 8}},
        "runs": [{"workload": "mlp", "set": {"batch": [1, 2]}, "repeats": 5}],
    }
    found = experiment_of(table).trials
    assert [(one.mode, one.repeats, one.set) for one in found] == [
        ("live", 5, {"batch": 1, "hidden": 8}),
        ("live", 5, {"batch": 2, "hidden": 8}),
    ]


@pytest.mark.parametrize(
    ("value", "budget"),
    [
        (0.5, Budget(ratio=0.5)),
        (1, Budget(ratio=1.0)),
        ("60%", Budget(ratio=0.6)),
        ("1KiB", Budget(nbytes=1024)),
        (1 << 20, Budget(nbytes=1 << 20)),
        (12e9, Budget(nbytes=12_000_000_000)),
        ("unlimited", Budget(nbytes=1 << 62)),
        (-1, Budget(nbytes=1 << 62)),
    ],
)
def test_a_budget_is_a_ratio_or_bytes(value: Any, budget: Budget) -> None:
    assert trial_of({"workload": "mlp", "policy": "lru", "budget": value}, "x", "").budget == budget


@pytest.mark.parametrize(
    ("table", "error"),
    [
        ({"rusn": []}, "x.toml: there is no key 'rusn'; did you mean runs?"),
        ({"runs": [{"workload": "mlp", "polcy": 1}]}, "x.toml: runs[0]: there is no key 'polcy'; did you mean policy?"),
        ({"defaults": {"repeat": 1}, "runs": []}, "x.toml: defaults: there is no key 'repeat'; did you mean repeats?"),
        (
            {"runs": [{"workload": "mlp"}, {"workload": "mlp", "policy": "dtr-qe", "budget": 1}]},
            "x.toml: runs[1].policy: there is no policy 'dtr-qe'; did you mean dtr-eq, dtr?",
        ),
        ({"runs": [{"workload": "mlp", "repeats": "x"}]}, "x.toml: runs[0].repeats: Expected `int`, got `str`"),
        (
            {"runs": [{"workload": "mlp", "mode": "liv"}]},
            "x.toml: runs[0].mode: 'liv' is none of its values: simulated, live",
        ),
        (
            {"runs": {"workload": "mlp"}},
            "x.toml: runs: each run is a table of a list: write [[runs]], with two brackets",
        ),
        ({"runs": [{"workload": "mlp", "policy": "lru"}]}, "x.toml: runs[0].budget: lru needs a budget"),
        *(
            (
                {"runs": [{"workload": "mlp", "policy": "lru", "budget": value}]},
                f"x.toml: runs[0].budget: {value} is no budget: write 0.6, '60%', '8GiB' or 'unlimited'",
            )
            for value in (0, 1e-300, -2, -0.5, True)
        ),
        (
            {"runs": [{"workload": "mlp", "set": {"a=b": 1}}]},
            "x.toml: runs[0].set: 'a=b' is the name of no hyperparameter",
        ),
        (
            {"runs": [{"workload": "mlp", "policy": "aot", "budget": "1GiB"}]},
            "x.toml: runs[0].budget: aot takes a ratio from 0 to 1",
        ),
        ({"runs": [{"workload": "mlp", "budget": 60}]}, "x.toml: runs[0].budget: a budget of 60 would be 60 bytes: "),
        ({"runs": [{"workload": "mlp", "budget": math.inf}]}, "x.toml: runs[0].budget: inf is no number of anything"),
        ({"runs": [{"workload": "mlp", "limit": math.nan}]}, "x.toml: runs[0].limit: nan is no number of anything"),
        ({"runs": [{"workload": "mlp", "set": {"p": [0.1, math.inf]}}]}, "x.toml: runs[0].set.p: inf is no number"),
        ({"runs": [{"policy": "lru"}]}, "x.toml: runs[0]: Object missing required field `workload`"),
        ({"runs": [{"workload": "mlp", "seed": [*range(200)], "steps": [*range(1, 99)]}]}, "more than 10,000 trials"),
        (
            {"runs": [{"workload": "mlp", "set": {"batch": []}}]},
            "x.toml: runs[0].set.batch: no trial comes of an empty",
        ),
        ({"runs": [{"workload": "mlp", "mode": "live", "seed": 2**70}]}, "x.toml: runs[0].seed: "),
        ({"runs": [{"workload": "mlp"}], "out": "a\0b"}, "x.toml: out: NUL can be in no path"),
        ({"runs": [{"workload": "mlp"}], "notify": ["say", "a\0b"]}, "x.toml: notify: NUL can be in no path"),
    ],
)
def test_an_error_names_the_file_and_the_key(table: dict[str, Any], error: str) -> None:
    with pytest.raises(RequestError) as raised:
        experiment_of(table, "x.toml")
    assert error in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_file_that_is_none_is_one_line(tmp_path: Path) -> None:
    broken = tmp_path / "x.toml"
    broken.write_text("runs = [")
    with pytest.raises(RequestError, match="is no TOML"):
        read_experiment(broken)
    with pytest.raises(RequestError, match=r"cannot read .*none\.toml: No such file"):
        read_experiment(tmp_path / "none.toml")
    for name in ("x.toml", "x.json"):
        (tmp_path / name).write_text("[" * 100_000 if name == "x.json" else "a = " + "[" * 100_000)
        with pytest.raises(RequestError, match="it is nested too deeply"):
            read_experiment(tmp_path / name)


def test_a_mark_at_the_start_of_a_file_is_none_of_its_text(tmp_path: Path) -> None:
    (tmp_path / "x.toml").write_text('\ufeff[[runs]]\nworkload = "mlp"\n', "utf-8")
    assert len(read_experiment(tmp_path / "x.toml").trials) == 1


def test_a_default_that_is_written_out_makes_no_other_trial() -> None:
    run = {"workload": "mlp", "policy": "lru", "budget": 0.5}
    short = experiment_of({"runs": [run]})
    long = experiment_of(
        msgspec.json.decode(msgspec.json.encode({"runs": [{**run, "policy": ["none", "lru"], "limit": 2.0}]}))
    )
    assert [trial.key for trial in long.trials] == [trial.key for trial in short.trials]
    assert len(long.trials) == 2


def test_the_page_has_every_key_and_its_example_is_what_it_says() -> None:
    assert page(PAGE.read_text()) == PAGE.read_text()
    for kind in (Head, Trial):
        for field in msgspec.structs.fields(kind):
            assert f"| `{field.name}` |" in PAGE.read_text()
    for name, rival in RIVALS.items():
        assert name.isidentifier()
        assert rival.about
        assert rival.takes in ("nothing", "a ratio", "a budget")
