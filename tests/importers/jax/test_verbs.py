"""Every verb that runs nothing takes a JAX step, and formulas of it hold at other settings."""

from __future__ import annotations

from pathlib import Path

import pytest

import tensortide
from tensortide.cli import main
from tensortide.cost import count
from tensortide.formulas import symbolic
from tensortide.importers.door import Built, resolve

pytestmark = pytest.mark.frameworks

pytest.importorskip("optax")

STEP = """
import jax, jax.numpy as jnp, optax
from jax import lax

def build(batch=4, width=8, depth=3):
    params = {"in": jnp.ones((6, width)), "stack": jnp.ones((depth, width, width))}
    optimizer = optax.adam(1e-3)

    def loss(params, x):
        x = jnp.tanh(x @ params["in"])
        x, _ = lax.scan(lambda x, w: (jnp.tanh(x @ w), None), x, params["stack"])
        return (x**2).mean()

    def step(params, state, x):
        value, gradients = jax.value_and_grad(loss)(params, x)
        updates, state = optimizer.update(gradients, state, params)
        return value, optax.apply_updates(params, updates), state

    return step, (params, optimizer.init(params), jnp.ones((batch, 6)))
"""


@pytest.fixture
def target(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "step.py").write_text(STEP)
    monkeypatch.chdir(tmp_path)
    return "step.py:build"


@pytest.mark.parametrize(
    "words",
    [
        ["count", "--strict"],
        ["count", "--explain", "0"],
        ["count", "--json", "--set", "batch=16"],
        ["memory", "--idle"],
        ["report", "--html", "step.html"],
        ["plan", "--budget", "100%", "--time-limit", "5"],
        ["remat", "simulate", "--budget", "100%"],
        ["time", "--machine", "h100-sxm"],
        ["metrics"],
        ["fit"],
        ["scale", "--machine", "2xh100-sxm"],
        ["check", "--assert", "peak <= 1GiB"],
        ["capture", "-o", "step.tide"],
    ],
    ids=lambda words: " ".join(words[:2]),
)
def test_verbs_take_a_jax_step(words: list[str], target: str, capsys: pytest.CaptureFixture[str]) -> None:
    at = 2 if words[0] == "remat" else 1
    with pytest.raises(SystemExit) as ended:
        main([*words[:at], target, *words[at:], "--quiet"])
    assert ended.value.code in (0, None), capsys.readouterr().err
    assert capsys.readouterr().out or "capture" in words


def test_a_verb_that_runs_the_step_refuses_it_in_one_message(target: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["run", target, "--budget", "90%"])
    assert ended.value.code
    assert capsys.readouterr().err.count("\n") == 1


def test_formulas_hold_at_a_setting_that_was_not_captured(target: str) -> None:
    found = resolve(target)
    assert isinstance(found, Built)
    derived = symbolic(found.workload.function, over=["batch", "width"], name=target)
    setting = {"batch": 24, "width": 40}
    want = count(tensortide.open(target, hyperparameters=setting).graph).total.cost
    assert derived.formulas.totals_at(setting)["product_flops"] == 2 * want.macs
