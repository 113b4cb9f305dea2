"""The text of frozen figures: what a comparison reports, which names figures have, and that nothing is left out."""

from __future__ import annotations

import pytest

import tensortide
from scripts.freeze.lines import Recorder, differences, lines_of, table_line, text_of, value_of
from scripts.freeze.names import EXEMPT_FUNCTIONS, EXEMPT_VERBS, NAMES, PREFIX, stable
from scripts.freeze.settings import BUDGETS, CROSSED, FROZEN, PLACE_CLUSTERS, SCALE_CLUSTERS, SINGLE
from scripts.option_tables import every_command


@pytest.fixture(scope="module")
def frozen() -> dict[str, str]:
    return lines_of(FROZEN.read_text("utf-8"))


def test_a_comparison_reports_what_is_missing_added_and_changed() -> None:
    old = {"plan/gpt2/peak_bytes": "123", "plan/gpt2/time_ns": "7", "report/gpt2/fits": "true"}
    new = {"plan/gpt2/peak_bytes": "124", "plan/gpt2/time_ns": "7", "report/gpt2/ops": "9"}
    assert differences(old, new) == [
        "missing report/gpt2/fits true",
        "added report/gpt2/ops 9",
        "changed plan/gpt2/peak_bytes 123 -> 124",
    ]
    assert differences(old, old) == []


def test_a_comparison_of_tables_names_the_columns() -> None:
    old = table_line({"op": ["mm", "relu"], "ns": [1, 2], "share": [0.5, 0.5]})
    new = table_line({"op": ["mm", "relu", "add"], "ns": [1, 2], "part": [0.5, 0.5]})
    (found,) = differences({"ops[]": old}, {"ops[]": new})
    assert found == "changed ops[] 2 -> 3 rows; without share; with part; other op"


def test_a_renamed_key_keeps_its_name_by_one_line_of_the_map() -> None:
    document = {"sections": {"answer": {"facts": {"peak": 5}, "tables": {"steps": {"op": [1]}}}}}
    before, after = Recorder({}), Recorder({"plan/found": "plan/answer", "plan/found/top": "plan/answer/peak"})
    before.document("plan", "gpt2@90%", document, 0)
    renamed = {"sections": {"found": {"facts": {"top": 5}, "tables": {"steps": {"op": [1]}}}}}
    after.document("plan", "gpt2@90%", renamed, 0)
    assert before.lines["plan/gpt2@90%/answer/peak"] == "5"
    assert after.lines == before.lines


def test_two_figures_never_share_a_name_and_a_name_is_one_word() -> None:
    into = Recorder({"plan/found/top": "plan/answer/peak"})
    into.add("plan/answer/peak", "gpt2", "5")
    with pytest.raises(ValueError, match="two figures are called plan/gpt2/answer/peak: 5 and 6"):
        into.add("plan/found/top", "gpt2", "6")
    with pytest.raises(ValueError, match="'plan/gpt2/two words' of a figure has a space"):
        into.add("plan/two words", "gpt2", "5")


def test_the_map_of_names_is_one_to_one() -> None:
    assert len({*NAMES.values()}) == len(NAMES)
    assert [old for old, new in NAMES.items() if old == new] == []
    assert stable("plan/found/top", {"plan/found": "plan/answer"}) == "plan/answer/top"


def test_values_do_not_depend_on_the_last_digits_of_a_float() -> None:
    assert value_of(0.1 + 0.2) == value_of(0.3) == "0.3"
    assert value_of(2.0) == value_of(2) == "2"
    assert value_of(1.00000000001) != value_of(1.0)
    assert value_of({"ns": [float("nan")], "tensortide": "0.1.0"}) == '{"ns":["nan"]}'


def test_the_text_is_sorted_and_read_as_it_was_written(frozen: dict[str, str]) -> None:
    text = FROZEN.read_text("utf-8")
    assert text_of(frozen) == text
    assert lines_of("a b c\n") == {"a": "b c"}


def test_every_verb_has_figures_or_a_reason(frozen: dict[str, str]) -> None:
    recorded = {name.split("/")[0].replace("_", " ") for name in frozen}
    verbs = {" ".join(path) for path, _ in every_command()}
    assert verbs - recorded == EXEMPT_VERBS.keys()


def test_every_public_name_has_figures_or_a_reason(frozen: dict[str, str]) -> None:
    recorded = {name.removeprefix(PREFIX).split("/")[0] for name in frozen if name.startswith(PREFIX)}
    recorded |= {name.split("/")[2] for name in frozen if name.startswith(f"{PREFIX}errors/")}
    assert {*tensortide.__all__} - recorded == EXEMPT_FUNCTIONS.keys()


def test_every_graph_cluster_and_budget_has_figures(frozen: dict[str, str]) -> None:
    cases: dict[str, set[str]] = {}
    for name in frozen:
        verb, case = name.split("/")[:2]
        cases.setdefault(verb, set()).add(case)
    for subject in CROSSED:
        assert {f"{subject.name}@{budget}" for budget in BUDGETS} <= cases["plan"] & cases["remat_simulate"]
        assert {f"{subject.name}@{cluster}" for cluster in PLACE_CLUSTERS} <= cases["place"]
        assert {f"{subject.name}@{cluster}" for cluster in SCALE_CLUSTERS} <= cases["scale"]
    assert {subject.name for subject in (*CROSSED, *SINGLE)} <= cases["report"] & cases["capture"]
