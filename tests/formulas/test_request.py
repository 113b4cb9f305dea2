"""Questions about formulas, asked in Python."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from tensortide.errors import ExitStatus, NoSolution, RequestError, UnknownCost, status_of
from tensortide.formulas import load_formulas, save_formulas
from tensortide.formulas.projection import DOMAINS
from tensortide.formulas.questions import (
    GrowthRequest,
    ProjectRequest,
    ShowRequest,
    SolveRequest,
    SweepRequest,
    Swept,
    answer_growth,
    answer_project,
    answer_show,
    answer_solve,
    answer_sweep,
)
from tensortide.formulas.request import DomainRequest, FormulaFiles, FormulaRequest, Legal
from tests.formulas.samples import transformer, word_lm


def texts(*values: str) -> Any:
    """Texts in place of the values that they mean."""
    return values


@pytest.fixture
def gpt2(tmp_path: Path) -> str:
    save_formulas(transformer(), tmp_path / "gpt2.formulas.json")
    return str(tmp_path / "gpt2.formulas.json")


def test_formulas_are_swept(gpt2: str) -> None:
    asked = SweepRequest(target=gpt2, over=texts("batch=1,8"), step=FormulaRequest(set=("seq=512",)))
    assert asked.over == (Swept("batch", (1, 8)),)
    assert dataclasses.replace(asked) == asked
    costs, found = answer_sweep(asked)
    assert costs.defaults["seq"] == 512
    assert found.column("flops") == [transformer().evaluate(batch=n, seq=512)["flops"] for n in (1, 8)]
    with pytest.raises(RequestError, match=r"batch is swept twice: .* --over batch=8,9"):
        SweepRequest(target=gpt2, over=texts("batch=1", "hidden=8", "batch=2"))
    strict = SweepRequest(target=gpt2, over=(Swept("hidden", (768, 770)),), step=FormulaRequest(strict=True))
    with pytest.raises(UnknownCost, match="hidden=770: needs hidden % heads == 0"):
        answer_sweep(strict)


def test_formulas_are_solved(gpt2: str) -> None:
    _, found = answer_solve(SolveRequest(target=gpt2, symbol="batch", where="peak_bytes <= 24GiB"))
    assert (found.value, found.kind) == (9, "largest")
    with pytest.raises(NoSolution) as none:
        answer_solve(SolveRequest(target=gpt2, symbol="batch", where="peak_bytes <= 1GiB"))
    assert status_of(none.value) == ExitStatus.FAILS


def test_formulas_grow_and_are_projected(gpt2: str, tmp_path: Path) -> None:
    found = answer_growth(GrowthRequest(target=gpt2, of="heads", path=texts("hidden=64*heads", "layers=heads")))
    assert found.terms.keys() <= found.formulas.totals.keys()
    save_formulas(word_lm(), tmp_path / "lm")
    asked = ProjectRequest(
        target=str(tmp_path / "lm"),
        domain=DOMAINS["word_lm"],
        growth="h",
        batch="b",
        samples_per_step="b*s",
        samples=77e9,
        step=FormulaRequest(set=("s=80", "b=128")),
    )
    assert round(answer_project(asked)[1].requirements[1].step_s) == 115
    with pytest.raises(RequestError, match=r"samples takes .* above 0, not 0"):
        dataclasses.replace(asked, samples=0)


def test_a_file_has_no_domain(gpt2: str, tmp_path: Path) -> None:
    assert answer_show(ShowRequest(target=gpt2)) == transformer()
    asked = ShowRequest(target=gpt2, step=FormulaRequest(domain=DomainRequest(values=(Legal("batch", (1, 2)),))))
    with pytest.raises(RequestError, match="is a file of formulas: --values goes with a workload"):
        answer_show(asked)
    files = FormulaFiles(formulas=tmp_path / "again.json", latex=tmp_path / "again.tex")
    assert files.write(transformer()) == [files.formulas, files.latex]
    assert load_formulas(tmp_path / "again.json") == transformer()


@pytest.mark.parametrize("value", ["batch", "batch=few", "batch=1,,2"])
def test_legal_values_are_numbers(value: str) -> None:
    assert DomainRequest(values=texts("batch=1, 2")).values == (Legal("batch", (1, 2)),)
    with pytest.raises(RequestError, match=f"--values takes name=1,2,3, not '{value}'"):
        DomainRequest(values=texts(value))
