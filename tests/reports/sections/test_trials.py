"""Sections of experiments: trials and their failures, pictures, repetitions as data, folders to compare with."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tensortide.reports.blocks import Document, Note
from tensortide.reports.pictures import End, Scatter
from tensortide.reports.render.csv import render_csv
from tensortide.reports.render.figure import draw
from tensortide.reports.render.html import render_html
from tensortide.reports.render.json import render_json
from tensortide.reports.render.terminal import render_text
from tensortide.reports.sections.trials import document
from tensortide.studies.experiment.comparison import compared
from tensortide.studies.experiment.grammar import experiment_of
from tensortide.studies.experiment.results import RESULTS, Outcome, Repetition, ResultFile, Status
from tensortide.studies.experiment.runner import Conducted
from tensortide.studies.experiment.trials import NONE

TIMES = {NONE: (10, 11, 12), "lru": (20, 21, 22), "dtr": (15, 16, 17)}


def conducted(
    folder: Path, times: dict[str, tuple[int, ...]] | None = None, left: int = 1, budgets: Sequence[float] = (0.9, 0.8)
) -> Conducted:
    """Trials of two policies under ``budgets`` and one that is too small, of which ``left`` have not run."""
    runs = {"workload": "mlp", "mode": "live", "policy": ["lru", "dtr"], "budget": [*budgets, 0.1]}
    experiment = experiment_of({"runs": [runs]}, name="small")
    trials = {trial.key: trial for trial in experiment.trials}
    outcomes: dict[str, Outcome] = {}
    folder.mkdir(exist_ok=True)
    file = ResultFile(folder)
    for key, trial in [*trials.items()][: len(trials) - left]:
        small = trial.budget is not None and trial.budget.ratio == 0.1
        status: Status = "infeasible" if small else "ok"
        each = () if small else (times or TIMES)[trial.policy]
        outcomes[key] = Outcome(
            trial=trial,
            status=status,
            reason="too small a budget" if small else "",
            exit_status=int(small),
            repetitions=tuple(Repetition(times_ns=(ns,), peak_bytes=100) for ns in each),
            batch=8,
        )
        file.add(key, outcomes[key])
    file.close()
    return Conducted(experiment, folder, trials, outcomes, {[*trials][-1]: 1})


def test_every_trial_stands_in_the_table_also_those_that_run(tmp_path: Path) -> None:
    made = document(conducted(tmp_path / "a"))
    table = made["trials"].table("trials")
    values = {column.key: column.values for column in table.columns}
    assert values["status"] == ("ok", "ok", "ok", "infeasible", "ok", "ok", "running")
    assert values["repetitions"][-1] == 1
    assert values["policy"] == (NONE, *["lru"] * 3, *["dtr"] * 3)
    assert values["slowdown"] == (1, 21 / 11, 21 / 11, None, 16 / 11, 16 / 11, None)
    assert {column.key for column in table.columns if column.pick} == {"status", "workload", "mode", "policy"}
    assert made.verdicts[0].text == "7 trials: 5 ok, 1 infeasible, 1 running"
    assert made.verdicts[0].kind == "failure"
    assert made["trials"].table("failures").columns[-1].values == ("too small a budget",)


def test_slowdown_is_drawn_against_memory_for_each_policy(tmp_path: Path) -> None:
    (picture,) = document(conducted(tmp_path / "a"))["pareto"].blocks
    assert isinstance(picture, Scatter)
    drawn = {one.label: (one.x, one.y) for one in picture.points}
    assert drawn == {NONE: ((1,), (1,)), "lru": ((0.8, 0.9), (21 / 11,) * 2), "dtr": ((0.8, 0.9), (16 / 11,) * 2)}
    for one in picture.points[1:]:
        for low, y, high in zip(one.low, one.y, one.high, strict=True):
            assert low is not None
            assert y is not None
            assert high is not None
            assert low <= y <= high


def test_panels_of_a_mode_have_the_same_axes_which_hold_every_interval(tmp_path: Path) -> None:
    panels = [one for one in document(conducted(tmp_path / "a"))["pareto"].blocks if isinstance(one, Scatter)]
    for panel in panels:
        assert (panel.x.covers, panel.y.covers) == (panels[0].x.covers, panels[0].y.covers)
        low, high = panel.y.covers
        ends = [value for one in panel.points for part in (one.low, one.high) for value in part if value is not None]
        assert low == 1
        assert high == max(ends) > max(value or 0 for one in panel.points for value in one.y)


def test_a_policy_looks_the_same_in_every_panel_and_they_share_a_legend(tmp_path: Path) -> None:
    runs = [{"workload": "one", "policy": ["lru", "dtr"]}, {"workload": "two", "policy": ["dtr", "checkmate", "lru"]}]
    experiment = experiment_of({"defaults": {"budget": 0.5}, "runs": runs})
    trials = {trial.key: trial for trial in experiment.trials}
    outcomes = {
        key: Outcome(trial=trial, status="ok", repetitions=(Repetition(times_ns=(10,), peak_bytes=9),))
        for key, trial in trials.items()
    }
    made = document(Conducted(experiment, tmp_path, trials, outcomes))
    panels = [one for one in made["pareto"].blocks if isinstance(one, Scatter)]
    assert [[one.look for one in panel.points] for panel in panels] == [[None] * 3, [None, 2, 3, 1]]
    figure = draw(made)
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == [NONE, "lru", "dtr", "baseline", "checkmate"]
    colors = {
        (line.get_label(), line.get_color())
        for axis in figure.axes
        for line in axis.lines
        if line.get_marker() != "None"
    }
    assert len(colors) == len(dict(colors)) == 4


def test_simulated_times_are_told_with_their_source(tmp_path: Path) -> None:
    (trial,) = experiment_of({"runs": [{"workload": "mlp"}]}).trials
    told = Repetition(times_ns=(10,), peak_bytes=9, durations="predicted for a card")
    outcome = Outcome(trial=trial, status="ok", repetitions=(told,))
    found = Conducted(
        experiment_of({"runs": [{"workload": "mlp"}]}), tmp_path, {trial.key: trial}, {trial.key: outcome}
    )
    assert "Simulated times are sums of durations of ops: predicted for a card." in _notes(found)
    assert not [text for text in _notes(conducted(tmp_path / "a")) if text.startswith("Simulated times")]


def test_intervals_are_said_to_know_nothing_of_drift(tmp_path: Path) -> None:
    assert [text for text in _notes(conducted(tmp_path / "a")) if "drift" in text]
    single: dict[str, tuple[int, ...]] = {policy: times[:1] for policy, times in TIMES.items()}
    assert not [text for text in _notes(conducted(tmp_path / "b", single)) if "drift" in text]


def test_a_pair_of_trials_is_a_line_of_80_columns(tmp_path: Path) -> None:
    conducted(tmp_path / "a")
    conducted(tmp_path / "b")
    made: Document = compared(tmp_path / "a", tmp_path / "b").document()
    assert "mlp       live  lru     90 %    21 ns   21 ns  1.00x" in render_text(made, 80)


def test_slowdowns_that_chance_explains_are_named_at_any_width(tmp_path: Path) -> None:
    times: dict[str, tuple[int, ...]] = {NONE: (10, 20, 30), "lru": (20, 21, 22), "dtr": (1, 2, 3)}
    notes = [
        block.text for block in document(conducted(tmp_path / "a", times))["trials"].blocks if isinstance(block, Note)
    ]
    assert notes[1].startswith("No slowdown beyond chance, by the interval of 95 %: mlp live lru 90 % (0.67 to 2.20), ")
    assert notes[2].startswith("Faster than the baseline, by the interval of 95 %: mlp live dtr 90 % (")
    assert not [text for text in _notes(conducted(tmp_path / "b")) if "chance" in text or "Faster" in text]


def _notes(found: Conducted) -> list[str]:
    return [block.text for block in document(found)["trials"].blocks if isinstance(block, Note)]


def test_a_table_of_both_modes_says_that_their_peaks_differ(tmp_path: Path) -> None:
    for modes, told in (("live", 0), (["live", "simulated"], 1)):
        experiment = experiment_of({"runs": [{"workload": "mlp", "mode": modes}]})
        found = Conducted(experiment, tmp_path, {trial.key: trial for trial in experiment.trials}, {})
        assert sum(text.startswith("Peaks of the two modes") for text in _notes(found)) == told


def test_budgets_above_the_peak_are_named(tmp_path: Path) -> None:
    found = conducted(tmp_path / "a", budgets=(1.2, 0.8))
    (told,) = [text for text in _notes(found) if text.startswith("Budgets above")]
    assert told == "Budgets above the peak of the baseline: mlp live lru 120 %, mlp live dtr 120 %."
    assert not [text for text in _notes(conducted(tmp_path / "b")) if text.startswith("Budgets above")]


def test_workloads_are_not_broken_at_80_columns(tmp_path: Path) -> None:
    made = conducted(tmp_path / "a")
    runs = {"workload": "train.py:perceptron", "mode": "simulated", "policy": "dtr-eq", "budget": "1MiB"}
    trials = {trial.key: trial for trial in experiment_of({"runs": [runs]}).trials}
    outcomes = {key: Outcome(trial=trial, status="infeasible") for key, trial in trials.items()}
    screen = render_text(document(Conducted(made.experiment, made.folder, trials, outcomes)), 80)
    assert screen.count("infeasible  train.py:perceptron  simulated  ") == 2


def test_a_curve_ends_at_the_first_budget_that_is_too_small(tmp_path: Path) -> None:
    (picture,) = document(conducted(tmp_path / "a", left=0))["pareto"].blocks
    assert isinstance(picture, Scatter)
    ends = {one.label: one.end for one in picture.points}
    assert ends == {
        NONE: None,
        "lru": End("oom", 0.1, 0.8, 21 / 11),
        "dtr": End("oom", 0.1, 0.8, 16 / 11),
    }


def test_every_repetition_is_a_row_of_data(tmp_path: Path) -> None:
    made = document(conducted(tmp_path / "a"))
    rows = render_csv(made, "repetitions").splitlines()
    assert len(rows) == 1 + 5 * 3
    head = rows[0].split(",")
    first = dict(zip(head, rows[1].split(","), strict=True))
    assert (first["workload"], first["repetition"], first["step_ns"], first["peak_bytes"]) == ("mlp", "1", "10", "100")


def test_other_folders_are_listed_with_the_command_that_compares_them(tmp_path: Path) -> None:
    conducted(tmp_path / "before")
    other = experiment_of({"runs": [{"workload": "gpt2"}]}).trials[0]
    (tmp_path / "other").mkdir()
    file = ResultFile(tmp_path / "other")
    file.add(other.key, Outcome(trial=other, status="failed"))
    file.close()
    (tmp_path / "damaged").mkdir()
    (tmp_path / "damaged" / RESULTS).write_text("x\n")
    made = document(conducted(tmp_path / "now"))
    (command,) = made["others"].table("others").columns[-1].values
    assert command == f"tensortide experiment compare {tmp_path / 'before'} {tmp_path / 'now'}"
    nothing = Conducted(experiment_of({"runs": [{"workload": "mlp"}]}), tmp_path / "new", {}, {})
    assert "others" not in [section.key for section in document(nothing).sections]


def test_the_page_and_json_have_it_all(tmp_path: Path) -> None:
    made = document(conducted(tmp_path / "a"))
    assert "running" in render_html(made, compress=False)
    assert '"slowdown"' in render_json(made)


def test_two_folders_differ_where_intervals_do(tmp_path: Path) -> None:
    conducted(tmp_path / "a")
    conducted(tmp_path / "b", {**TIMES, "dtr": (30, 31, 32)}, left=0)
    found = compared(tmp_path / "a", tmp_path / "b")
    assert found.alone == (0, 1)
    factors = {(pair.policy, pair.budget): (pair.time_factor, pair.differs) for pair in found.pairs}
    asked = [(NONE, ""), ("lru", "90 %"), ("dtr", "80 %"), ("lru", "10 %")]
    assert [factors[key] for key in asked] == [(1, False), (1, False), (31 / 16, True), (None, False)]
    made: Document = found.document()
    assert made["comparison"].table("ends").columns[-1].values == ("infeasible",)
    assert made.verdicts[0].text == (
        f"2 of 6 trials differ by more than chance; {tmp_path / 'a'} has 0 others, {tmp_path / 'b'} 1."
    )
    assert made["comparison"].table("pairs").columns[2].values[:2] == ("dtr", "dtr")
