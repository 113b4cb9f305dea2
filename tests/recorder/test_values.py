"""A step that reads values of fake tensors is told stand-ins, and the Graph says so."""

from __future__ import annotations

import itertools
import math
import sys
import warnings
from logging import getLogger
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tensortide import capture
from tensortide.errors import CaptureError, DataDependent
from tensortide.graph import validate
from tensortide.recorder.reading import part_of
from tensortide.recorder.readings import ReadSite
from tensortide.recorder.values import Values
from tests.recorder.steps import Step, ops, storages, trained

FILE = "test_values.py"


def logging(batch: int = 8) -> Step:
    model, x = nn.Linear(16, 4), torch.randn(batch, 16)
    history: list[float] = []

    def log(loss: torch.Tensor) -> None:
        if not torch.isfinite(loss):
            raise ValueError("diverged")
        if torch.isnan(loss).any() or loss > 1e6:
            raise ValueError("diverged")
        history.append(loss.item())
        sys.stdout.write(
            f"{loss:.3f} {float(loss)} {loss.detach().numpy()} {np.asarray(loss.detach())} {loss.tolist()}"
        )

    return trained(model, lambda: F.cross_entropy(model(x), torch.zeros(batch, dtype=torch.long)), after=log)


def clipping(batch: int = 8) -> Step:
    model, x = nn.Linear(16, 4), torch.randn(batch, 16)

    def clip(loss: torch.Tensor) -> None:
        norm = torch.stack([p.grad.norm() for p in model.parameters() if p.grad is not None]).norm()
        if norm > 1:
            for parameter in model.parameters():
                assert parameter.grad is not None
                parameter.grad.mul_(1 / norm)

    return trained(model, lambda: model(x).sum(), after=clip)


def quasi_newton(line_search: str = "strong_wolfe") -> Step:
    model, x = nn.Linear(16, 4), torch.randn(8, 16)
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=3, line_search_fn=line_search or None)

    def closure() -> Any:
        optimizer.zero_grad()
        loss = model(x).pow(2).mean()
        loss.backward()
        return loss

    return lambda: optimizer.step(closure)


def cut(batch: int = 8) -> Step:
    x, lengths = torch.randn(batch, 30, 16), torch.randint(1, 30, (batch,))
    return lambda: x[:, : lengths.max().item()] * 2


def chosen(batch: int = 8) -> Step:
    x = torch.randn(batch, 16)
    return lambda: x[x > 0] * 2


def waiting() -> Step:
    x = torch.randn(4)

    def step() -> torch.Tensor:
        y = x.abs().sum() + 2
        while y > 0.5:
            y = y * 0.1
        return y

    return step


@pytest.mark.filterwarnings("ignore:Converting a tensor with requires_grad")
def test_a_step_that_logs_is_captured_and_says_what_it_assumed(capsys: pytest.CaptureFixture[str]) -> None:
    graph = capture(logging)
    validate(graph)
    said = "\n".join(graph.meta.assumptions)
    assert graph.meta.captured_on == "fake"
    assert "torch.isfinite(loss) taken as True at " in said
    assert "torch.isnan(loss).any() taken as False, loss > 1e6 taken as False at " in said
    assert "loss.item() taken as 1.0 at " in said
    assert said.endswith("no other value that was tried changes the ops of the step")
    assert ops(graph) == ops(capture(logging, real=True))
    assert "2.000" not in capsys.readouterr().out  # another value was tried in silence


def test_a_branch_that_depends_on_a_value_says_so() -> None:
    (said,) = capture(clipping).meta.assumptions
    assert said.startswith("norm > 1 taken as False at ")
    assert "; the ops of the step depend on it: with True, " in said


@pytest.mark.parametrize("line_search", ["", "strong_wolfe"])
def test_an_optimizer_that_reads_the_loss_runs_all_its_iterations(line_search: str) -> None:
    torch.manual_seed(0)
    fake, real = (
        capture(quasi_newton, hyperparameters={"line_search": line_search}, real=real) for real in (False, True)
    )
    assert ops(fake) == ops(real)
    assert storages(fake) == storages(real)


def test_values_that_decide_shapes_are_real_where_they_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    for workload, what in ((cut, "lengths.max().item()"), (chosen, "aten.nonzero"), (waiting, "y > 0.5")):
        graph = capture(workload)
        assert graph.meta.captured_on == "real"
        (said,) = graph.meta.assumptions
        assert said.startswith("captured on real tensors; fake ones failed: ")
        assert what in said
        assert FILE in said
    monkeypatch.setattr("tensortide.recorder.failure.available_bytes", lambda: 1000)
    for workload in (cut, chosen, waiting):
        with pytest.raises(DataDependent, match=rf"--assume '.*{FILE}:\d+="):
            capture(workload)


def test_an_assumed_number_of_elements_is_taken() -> None:
    line = chosen.__code__.co_firstlineno + 2
    graph = capture(chosen, assume={f"{FILE}:{line}": 37})
    assert graph.meta.captured_on == "fake"
    assert [op.outputs[0].shape for op in graph if op.name == "aten.index.Tensor"] == [(37,)]
    assert "taken as 37" in graph.meta.assumptions[0]
    line = cut.__code__.co_firstlineno + 2
    graph = capture(cut, assume={f"{FILE}:{line}": 12})
    assert next(op for op in graph if op.name == "aten.mul.Tensor").inputs[0].shape == (8, 12, 16)
    with pytest.raises(CaptureError, match=f"{FILE}:1 reads no value"):
        capture(cut, assume={f"{FILE}:1": 12})


@pytest.mark.parametrize(
    ("file", "named"),
    [("train.py", True), ("me/train.py", True), ("./train.py", True), ("../train.py", False), ("rain.py", False)],
)
def test_a_value_is_given_to_the_file_that_is_named(file: str, named: bool) -> None:
    place = ReadSite("/home/me/train.py", 3, "loss.item()", direct=True)
    assert (Values({f"{file}:3": 7}).chosen(place) == 7) is named
    assert Values({f"{file}:4": 7}).chosen(place) is None


def test_a_loop_that_waits_for_a_value_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(DataDependent, match=r"while y > 0\.5: at line \d+ has come no nearer to its end in 100 rounds"):
        capture(waiting, real=False)

    def without_end() -> Step:
        x = torch.randn(4)
        return lambda: [x * i for i in itertools.takewhile(lambda _: x.sum() > 0, itertools.count())]

    monkeypatch.setattr("tensortide.recorder.values.READ_LIMIT", 200)
    with pytest.raises(DataDependent, match="over 200 times at one line"):
        capture(without_end, real=False)


def suppressed(rounds: int = 0) -> Step:
    boxes, scores = torch.rand(50, 4), torch.rand(50)

    def step() -> list[torch.Tensor]:
        order, keep = scores.argsort(descending=True), list[torch.Tensor]()

        def left() -> torch.Tensor:
            keep.append(boxes[order[:1]])
            far = (boxes[order] - keep[-1]).abs().sum(-1) > 0.5
            return order[far.nonzero().squeeze(1)]

        if rounds:
            while order.numel() > 0 and len(keep) < rounds:
                order = left()
        while not rounds and order.numel() > 0:
            order = left()
        return keep

    return step


def test_a_loop_over_assumed_sizes_ends_early_unless_something_else_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tensortide.recorder.rounds.STUCK_ROUNDS", 10)
    line = suppressed.__code__.co_firstlineno + 9
    with pytest.raises(
        DataDependent, match=rf"(?s)while not rounds and order.numel\(\) > 0: at .*what --assume {FILE}:{line}=7 says"
    ):
        capture(suppressed, assume={f"{FILE}:{line}": 7})
    graph = capture(suppressed, hyperparameters={"rounds": 25}, assume={f"{FILE}:{line}": 7})
    assert sum(op.name == "aten.nonzero.default" for op in graph) == 25


class Writer(nn.Module):
    """Generates numbers until all of a batch are the last one."""

    def __init__(self, last: int, most: int) -> None:
        super().__init__()
        self.table, self.last, self.most = nn.Linear(1, 20), last, most

    def flags(self, ids: torch.Tensor) -> torch.Tensor:
        done = torch.zeros(len(ids), dtype=torch.bool, device=ids.device)
        for _ in range(self.most):
            token = self.table(ids[:, -1:].float()).argmax(-1)
            ids = torch.cat([ids, token[:, None]], 1)
            done |= token == self.last
            if done.all():
                break
        return ids

    def condition(self, ids: torch.Tensor) -> torch.Tensor:
        made = 0
        while (
            not (ids[:, -1]  # of each sequence
                 == self.last).all()
            and made < self.most
        ):  # fmt: skip
            chances = self.table(ids[:, -1:].float()).softmax(-1)
            ids, made = torch.cat([ids, torch.multinomial(chances, 1)], 1), made + 1
        return ids

    def forever(self, ids: torch.Tensor) -> torch.Tensor:
        while True:
            _, best = self.table(ids[:, -1:].float()).topk(3)
            ids = torch.cat([ids, best[:, :1]], 1)
            if ids.shape[1] > self.most or best[:, 0].eq(self.last).all().item():
                return ids


@pytest.mark.parametrize("device", [None, "cuda"])
@pytest.mark.parametrize("how", ["flags", "condition", "forever"])
def test_a_condition_that_ends_a_loop_lets_it_run_as_long_as_it_may(how: str, device: str | None) -> None:
    def workload(last: int = 0) -> Step:
        model, ids = Writer(last, 4), torch.randint(1, 20, (3, 1))
        return lambda: getattr(model, how)(ids)

    for last in (0, 1):
        graph = capture(workload, hyperparameters={"last": last}, device=device)
        assert sum(op.name.startswith("aten.cat") for op in graph) == 4
        said = "\n".join(graph.meta.assumptions)
        assert "the loop goes on until something else ends it" in said
        assert "other values" not in said
        assert ("(ids[:, -1] == self.last).all() taken as False at " in said) == (how == "condition")


def test_what_fails_on_fake_tensors_only_runs_on_real_ones() -> None:
    layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
    model, x = nn.TransformerEncoder(layer, 2).eval(), torch.randn(4, 7, 16)
    padding = torch.arange(7)[None] >= torch.tensor([3, 7, 5, 6])[:, None]

    def step() -> None:
        with warnings.catch_warnings(action="ignore"), torch.no_grad():
            model(x, src_key_padding_mask=padding)

    graph = capture(step)
    validate(graph)
    assert "fake ones failed: nested tensors of the strided layout" in graph.meta.assumptions[0]
    with pytest.raises(CaptureError, match="enable_nested_tensor=False"):
        capture(step, real=False)

    def broken() -> None:
        raise KeyError("mine")

    with pytest.raises(CaptureError, match="raised KeyError: 'mine'") as error:
        capture(broken)
    assert "--real" not in str(error.value)


@pytest.mark.filterwarnings("ignore:Converting a tensor with requires_grad")
def test_a_step_that_logs_is_captured_for_a_gpu_too() -> None:
    assert "loss.item() taken as 1.0" in "\n".join(capture(logging, device="cuda").meta.assumptions)


def test_an_expression_within_a_text_is_named_by_itself() -> None:
    x = torch.randn(4)
    graph = capture(lambda: f"{len(x)} of {x.shape}: {x.sum().item():.3f} and {x.max().item()}")
    (said,) = graph.meta.assumptions
    assert said.startswith("x.sum().item() taken as 1.0, x.max().item() taken as 0.99 at ")


PRINTS = {
    'print("loss", round(math.exp(loss.item()), 3))': True,
    'logger.info("loss %f", loss.item())': True,
    "losses.append(loss.item())": False,
    "print(run(loss.item()))": False,
}


@pytest.mark.parametrize("code", PRINTS)
def test_a_value_that_only_a_text_has_is_printed(code: str, tmp_path: Path) -> None:
    file = tmp_path / "step.py"
    file.write_text(code)
    found = []

    class Loss:
        def item(self) -> float:
            found.append(part_of(sys._getframe(1)).printed)
            return 1.0

    names = {"loss": Loss(), "math": math, "print": lambda *texts: texts, "losses": [], "run": repr}
    exec(compile(code, file, "exec"), names | {"logger": getLogger("none")})
    assert found == [PRINTS[code]]


def test_assumptions_that_decide_ops_are_told_from_those_that_do_not() -> None:
    logged = capture(logging).meta
    assert logged.decisive == logged.untested == ()
    (said,) = capture(clipping).meta.decisive
    assert said.startswith("norm > 1 taken as False at ")
    model, ids = Writer(0, 3), torch.randint(1, 20, (3, 1))
    (said,) = capture(lambda: model.flags(ids)).meta.decisive
    assert said.startswith("done.all() taken as False at ")


def test_a_number_drawn_at_random_is_one_of_those_that_may_be_drawn(capsys: pytest.CaptureFixture[str]) -> None:
    def step() -> torch.Tensor:
        numbers = [torch.randint(10, 20, (1,)), *(torch.empty(1, dtype=torch.int64) for _ in range(3))]
        numbers[1].random_(10, 20)
        numbers[2].random_(20)
        numbers[3].random_()
        sys.stdout.write("".join(f"{int(number)} " for number in numbers))
        return torch.ones(2) + 1

    capture(step)
    drawn = list(map(int, capsys.readouterr().out.split()))
    assert len(drawn) >= 4
    for at, number in enumerate(drawn):
        assert number in (range(10, 20), range(10, 20), range(20), range(2**63))[at % 4]
