"""What figures are recorded of: graphs, clusters, budgets, and limits of searches."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from tests.examples.tiny import TINY

INPUTS = Path(__file__).parent / "inputs"
"""Committed times and machines."""
TESTS = Path(__file__).parents[2] / "tests"
DATA = TESTS / "data"
"""Committed data of tests."""
FROZEN = TESTS / "frozen.txt"
"""The committed text."""


class Subject(NamedTuple):
    """A step that is captured on fake tensors: an example at small settings, for a device that need not be here."""

    name: str
    example: str
    device: str = "cuda"
    larger: Mapping[str, int] = {}

    @property
    def settings(self) -> dict[str, int | float | str | bool]:
        """Hyperparameters: those of tests, but for the ``larger`` ones."""
        return {**TINY[self.example], **self.larger}

    @property
    def machine(self) -> str | None:
        """The machine whose kernels it has; None of a CPU."""
        return MACHINE if self.device == "cuda" else None

    @property
    def options(self) -> tuple[str, ...]:
        """Options of a capture of it."""
        settings = (f"--set={key}={value}" for key, value in self.settings.items())
        machine = () if self.machine is None else ("--machine", self.machine)
        return (*settings, "--device", self.device, *machine)


MACHINE = "small.json"
"""The machine for which steps are captured."""
CROSSED = (
    Subject("mlp", "mlp", "cpu", {"batch": 512, "hidden": 32, "layers": 4}),
    Subject("gpt2", "gpt2", larger={"batch": 64, "seq": 64, "hidden": 32, "positions": 64}),
    Subject("resnet18", "resnet18_cifar", larger={"batch": 256, "image": 16, "width": 8}),
    Subject("lstm", "lstm", "cpu", {"batch": 64}),
    Subject("mixtral", "mixtral", larger={"batch": 64, "seq": 64}),
)
"""Steps that every verb is asked about, on every cluster and in every budget: most of their memory is activations."""
SHORT = Subject("short", "mlp", "cpu", {"batch": 64, "layers": 1})
"""A step that is short enough for searches whose work no option limits."""
CHEAP = ("mlp", "gpt2", "lstm")
"""Those of ``CROSSED`` that are asked what takes tens of seconds of longer ones."""
SINGLE = tuple(
    Subject(name, name)
    for name in (
        "alexnet",
        "bert",
        "char_lm",
        "diffusion",
        "gru",
        "inception_v3",
        "llama",
        "mobilenet_v2",
        "nmt",
        "resnet32_cifar",
        "resnet34",
        "speech",
        "transformer",
        "treelstm",
        "unet",
        "unrolled_gan",
        "vgg",
        "vit",
        "word2vec",
        "word_lm",
    )
)
"""Steps that some verbs are asked about, at one setting."""
SCALE_CLUSTERS = {"large": ("large.json", "2"), "small": ("small.json", "4"), "nodes": ("large.json", "16")}
"""Clusters of ``scale``: the machine, and how many devices."""
PLACE_CLUSTERS = ("pair", "four", "mixed")
"""Clusters of ``place``: ``inputs/NAME_cluster.json``."""
BUDGETS = ("95%", "85%", "75%", "60%")
"""Budgets of memory, as shares of the peak."""

_UNREACHED = 1_000_000_000
"""Work that no search here comes to. With a limit of work alone no search reads a clock, so the same is found on a busy
machine."""
LIMITS: dict[str, tuple[str, ...]] = {
    "fit": ("--threads", "1"),
    "formulas": ("--work-limit", "10000"),
    "place": ("--budget", "100", "--threads", "1"),
    "place algorithms": (),
    "place compare": ("--budget", "60", "--seeds", "1", "--threads", "1"),
    "place examples": (),
    "place paleo": (),
    "place run": ("--budget", "60"),
    "place score": ("--threads", "1"),
    "place validate": (),
    "plan": ("--effort", "0.05", "--work-limit", str(_UNREACHED)),
    "plan order": ("--work-limit", str(_UNREACHED)),
    "remat": ("--threads", "1"),
    "remat contenders": ("--work-limit", "5000000", "--threads", "1"),
    "remat simulate": ("--limit", "3"),
    "scale": ("--threads", "1"),
}
"""Options that limit the searches of each verb."""
PYTHON_LIMITS: dict[str, dict[str, Any]] = {
    "footprint": {"work_limit": _UNREACHED},
    "frontier": {"effort": 0.05, "work_limit": _UNREACHED},
    "plan": {"effort": 0.05, "work_limit": _UNREACHED},
    "symbolic": {"work_limit": 10_000},
}
"""The same as arguments of functions."""
