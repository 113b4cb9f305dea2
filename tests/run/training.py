"""Training loops drawn from a seed: layers, optimizer, and what people do around them."""

from __future__ import annotations

import functools
import random
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tests.run.layers import LAYERS, WIDTH

CLASSES = 7
OPTIMIZERS: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "sgd": lambda p: torch.optim.SGD(p, 0.05, momentum=0.9, nesterov=True, foreach=False),
    "sgd-fused": lambda p: torch.optim.SGD(p, 0.05, momentum=0.9, fused=True),
    "adam": lambda p: torch.optim.Adam(p, 1e-2, foreach=False, amsgrad=True),
    "adam-foreach": lambda p: torch.optim.Adam(p, 1e-2, foreach=True),
    "adamw-fused": lambda p: torch.optim.AdamW(p, 1e-2, fused=True),
    "adamw-maximize": lambda p: torch.optim.AdamW(p, 1e-2, foreach=True, maximize=True),
    "adagrad": lambda p: torch.optim.Adagrad(p, 1e-2, foreach=True),
    "adadelta": lambda p: torch.optim.Adadelta(p, foreach=True),
    "adafactor": torch.optim.Adafactor,
    "rmsprop": lambda p: torch.optim.RMSprop(p, 1e-2, foreach=True, centered=True),
    "radam": lambda p: torch.optim.RAdam(p, 1e-2, foreach=False),
    "nadam": lambda p: torch.optim.NAdam(p, 1e-2, foreach=True),
    "rprop": lambda p: torch.optim.Rprop(p, 1e-2),
    "asgd": lambda p: torch.optim.ASGD(p, 1e-2, foreach=True),
    "lbfgs": lambda p: torch.optim.LBFGS(p, 1e-2, max_iter=2, history_size=3),
}


class Stop(Exception):
    """A program of the user that fails in the middle of a step."""


@functools.cache
def lstm_runs_in_bfloat16() -> bool:
    """Whether PyTorch has an LSTM in bfloat16 for this CPU: not for every one without AVX-512. Draws nothing from the
    generator, which later runs of the same loop would find elsewhere."""
    try:
        with torch.random.fork_rng(), torch.autocast("cpu", dtype=torch.bfloat16):
            nn.LSTM(WIDTH, WIDTH)(torch.zeros(2, 2, WIDTH))
    except RuntimeError:
        return False
    return True


class Training:
    """A classifier with everything around it that ``seed`` says; a call is one step and returns its loss."""

    def __init__(self, seed: int, layers: list[str] | None = None, optimizer: str | None = None) -> None:
        dice = random.Random(seed)
        names = layers or dice.sample(sorted(LAYERS), dice.randint(3, 6))
        self.names = names
        self.embed = nn.Embedding(CLASSES, WIDTH)
        self.model = nn.Sequential(*(LAYERS[name]() for name in names))
        self.head = nn.Linear(WIDTH, CLASSES, bias=dice.random() < 0.5)
        if dice.random() < 0.3:
            self.head.weight = self.embed.weight
        self.whole = nn.ModuleList([self.embed, self.model, self.head])
        self.kind = optimizer or dice.choice(sorted(OPTIMIZERS))
        self.optimizer = OPTIMIZERS[self.kind](self.whole.parameters())
        lbfgs = self.kind == "lbfgs"
        self.autocast = dice.random() < 0.3 and ("lstm" not in names or lstm_runs_in_bfloat16())
        self.scaler = torch.amp.GradScaler("cpu", init_scale=64.0, enabled=not lbfgs and dice.random() < 0.3)
        self.accumulate = 1 if lbfgs else dice.choice([1, 1, 3])
        self.clip = dice.choice([None, "norm", "value"])
        self.to_none = dice.random() < 0.7
        self.penalty = dice.random() < 0.2 and not {"checkpoint-reentrant", "lstm", "gru", "attention"} & set(names)
        self.fails = dice.random() < 0.3
        self.evaluates = dice.random() < 0.3
        self.changing = dice.random() < 0.4
        self.schedule = torch.optim.lr_scheduler.StepLR(self.optimizer, 2, 0.5)
        self.average = torch.optim.swa_utils.AveragedModel(self.head) if dice.random() < 0.3 else None
        self.steps = 0

    def batch(self) -> tuple[Tensor, Tensor]:
        rows = 64 + 8 * (self.steps % 3) if self.changing else 64
        return torch.randn(rows, WIDTH), torch.randint(0, CLASSES, (rows,))

    def loss(self, x: Tensor, labels: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=self.autocast):
            found = self.head(self.model(x + self.embed(labels.roll(1))))
            loss = F.cross_entropy(found.clamp(-30, 30).float(), labels)
        if self.penalty and torch.is_grad_enabled():
            slopes = torch.autograd.grad(loss, [self.head.weight], create_graph=True)
            loss = loss + 0.01 * sum((slope.square().sum() for slope in slopes), start=torch.zeros(()))
        return loss

    def __call__(self) -> Tensor:
        self.steps += 1
        if self.fails and self.steps % 2 == 0:
            self.fail()
        if self.kind == "lbfgs":
            x, labels = self.batch()
            closure: Any = lambda: self.gradients(x, labels)  # noqa: E731  # PyTorch says that it returns a float
            return torch.as_tensor(self.optimizer.step(closure))
        loss = torch.zeros(())
        for _ in range(self.accumulate):
            loss = self.gradients(*self.batch())
        self.scaler.unscale_(self.optimizer)
        if self.clip == "norm":
            nn.utils.clip_grad_norm_(self.whole.parameters(), 1.0)
        elif self.clip == "value":
            nn.utils.clip_grad_value_(self.whole.parameters(), 0.1)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.schedule.step()
        if self.average is not None:
            self.average.update_parameters(self.head)
        if self.evaluates:
            self.evaluate()
        self.optimizer.zero_grad(set_to_none=self.to_none)
        return loss.detach()

    def gradients(self, x: Tensor, labels: Tensor) -> Tensor:
        if self.kind == "lbfgs":
            self.optimizer.zero_grad()
        loss = self.loss(x, labels)
        self.scaler.scale(loss).backward()
        return loss

    def evaluate(self) -> None:
        self.whole.eval()
        with torch.no_grad():
            self.loss(*self.batch()).item()
        self.whole.train()

    def fail(self) -> None:
        """A step that an error of the program ends between two layers, and another that ends in backward."""

        def raises(gradient: Tensor) -> Tensor:
            raise Stop

        hook = self.model[-1].register_forward_pre_hook(lambda module, given: raises(given[0]))
        for _ in range(2):
            try:
                x, _ = self.batch()
                found = self.model(x.requires_grad_())
                found.register_hook(raises)
                found.sum().backward()
            except Stop:
                hook.remove()
        self.optimizer.zero_grad()
