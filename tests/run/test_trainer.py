"""The scripts in ``examples`` train the same with and without a budget: the same losses, to the last bit."""

from __future__ import annotations

import importlib.util
from typing import Any

import pytest

import tensortide
from tensortide.run.budget import Budget
from tests.conftest import ROOT

SCRIPTS = {
    "train_gpt": ("6MiB", ["--steps", "3", "--batch", "8", "--seq", "64", "--hidden", "64", "--layers", "3"]),
    "train_unet": ("5MiB", ["--steps", "3", "--batch", "4", "--size", "48"]),
    "train_transformers": ("6MiB", ["--steps", "3", "--batch", "4"]),
}


def script(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(name, ROOT / "examples" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def losses(
    name: str, options: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> tuple[str, str]:
    """What a script prints without a budget and with one, under which it had to compute again."""
    budget, settings = SCRIPTS[name]
    opened: list[Budget] = []

    def record(limit: str) -> Budget:
        opened.append(Budget(limit))
        return opened[-1]

    monkeypatch.setattr(tensortide, "budget", record)
    main = script(name).main
    main([*settings, *options])
    plain = capsys.readouterr().out
    main([*settings, *options, "--budget", budget])
    assert opened[0].usage.recomputations > 0
    assert opened[0].usage.peak_bytes <= opened[0].budget_bytes
    return plain, capsys.readouterr().out


@pytest.mark.parametrize("name", sorted(SCRIPTS))
def test_losses_are_the_same(name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    if name == "train_transformers":
        pytest.importorskip("transformers")
    plain, tight = losses(name, [], capsys, monkeypatch)
    assert len(plain.splitlines()) == 3
    assert plain == tight


def test_the_trainer_of_transformers_takes_a_budget(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("transformers")
    pytest.importorskip("accelerate", reason="transformers.Trainer needs accelerate")
    plain, tight = losses("train_transformers", ["--trainer"], capsys, monkeypatch)
    ours = [[line for line in text.splitlines() if line[:1].isdigit()] for text in (plain, tight)]  # not the trainer's
    assert len(ours[0]) == 3
    assert ours[0] == ours[1]
