"""Logs for tests: where they are, and random ones with every instruction, right in both readings of MUTATE."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

WORKED = Path(__file__).with_name("worked_example.jsonl")
MODELS = ("resnet32-56", "unet-6", "transformer-10", "unroll_gan-512", "lstm-128")
SYNTHETIC = ("syn00", "syn01", "syn03", "syn04", "syn05", "syn07", "syn09", "syn10")


class Log:
    """A log under construction. Names that were not released are ``live``; all ``names`` stay known."""

    def __init__(self, random: random.Random) -> None:
        self.random = random
        self.lines: list[dict[str, Any]] = []
        self.names: list[str] = []
        self.live: list[str] = []

    def text(self) -> str:
        return "".join(json.dumps(line) + "\n" for line in self.lines)

    def add(self, instruction: str, **fields: Any) -> None:
        self.lines.append({"INSTRUCTION": instruction, **fields})

    def number(self, value: int) -> str | int:
        """As a string, as in logs, or as an integer."""
        return self.random.choice((str(value), value))

    def name(self) -> str:
        self.names.append(f"x{len(self.names)}")
        self.live.append(self.names[-1])
        return self.names[-1]

    def some(self, names: list[str], most: int) -> list[str]:
        """Up to ``most`` of ``names``, the same one more than once maybe."""
        return [self.random.choice(names) for _ in range(self.random.randint(0, most))] if names else []

    def constant(self) -> None:
        name = self.name()
        self.add("CONSTANT", NAME=name)
        self.add("MEMORY", NAME=name, MEMORY=self.number(self.random.randint(0, 99)))

    def call(self) -> None:
        args = self.some(self.names, 3)
        results = [self.name() for _ in range(self.random.randint(0, 3))]
        op = self.random.choice(("mm", "view", "aten::bn.x", "mm_backward"))
        self.add("CALL", NAME=op, ARGS=args, RESULT=results, TIME=self.number(self.random.randint(0, 50)))
        for name in results:
            self.add("MEMORY", NAME=name, MEMORY=self.number(self.random.choice((0, self.random.randint(1, 99)))))
            self.add("ALIAS", NAME=name, ALIAS=self.number(self.random.randint(-1, len(args) - 1)))

    def mutate(self) -> None:
        args = self.some(self.live, 4)
        mutated = self.random.sample(range(len(args)), self.random.randint(0, len(args)))
        self.add("MUTATE", NAME="relu_", ARGS=args, MUTATE=mutated, TIME=self.number(self.random.randint(0, 50)))

    def copy(self) -> None:
        for source in self.some(self.names, 1):
            self.add("COPY", SRC=source, DST=self.name())

    def copy_from(self) -> None:
        for name in self.some(self.live, 1):
            self.add("COPY_FROM", DST=name, SRC=self.random.choice(self.names))

    def release(self) -> None:
        for name in self.some(self.live, 1):
            self.live.remove(name)
            self.add("RELEASE", NAME=name)

    def noise(self) -> None:
        self.random.choice(
            (
                lambda: self.add("ANNOTATE", ANNOTATION="epoch 1"),
                lambda: self.add("ANNOTATE", ANNOTATION="BACKWARD"),
                lambda: self.add("RELEASE", NAME="from before"),
            )
        )()


def random_log(random: random.Random, length: int = 40) -> str:
    """A log of about ``length`` instructions."""
    log = Log(random)
    if random.random() < 0.5:
        log.add("CALL", NAME="before", ARGS=["nothing"], RESULT=[], TIME="1")
        log.add("ANNOTATE", ANNOTATION="START")
    log.constant()
    makers = (log.constant, *[log.call] * 4, *[log.mutate] * 2, *[log.copy] * 2, log.copy_from, *[log.release] * 4)
    for _ in range(length):
        random.choice((*makers, log.noise))()
    return log.text()


@st.composite
def logs(draw: st.DrawFn) -> str:
    """Random logs."""
    return random_log(draw(st.randoms(use_true_random=False)), draw(st.integers(0, 40)))
