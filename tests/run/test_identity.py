"""Under any budget that suffices a training step leaves behind what it does without one, bit for bit."""

from __future__ import annotations

import pytest

from tensortide.examples import examples, find
from tests.examples.tiny import LARGE, OTHER_SIZES, TINY
from tests.marks import some_slow
from tests.recorder.workloads import ALL, classifier
from tests.run.same import squeezed

SHARES = (0.6, 0.75, 0.9)
"""Of what a step needs beyond what is there at its start."""
POLICIES = ("dtr-eq", "dtr", "dtr-eq+sqrt", "lru")
NAMES = sorted(example.name for example in examples() if example.available)
SIZES = {"resnet", "resnet18", *OTHER_SIZES}
"""Examples that differ from others, as from ``resnet18_cifar`` and ``resnet50``, in their sizes alone."""
MUCH = ("gpt2", "char_lm", "resnet18_cifar")
LONG_CHAINS = {"nmt", "speech"}
"""Other policies than the default one run many thousand ops again."""
WITHIN = {"attention", "custom-function", "flat-views", "scaler"}
"""Features that only need what they begin and end with; ``layers`` has them larger."""
OPTIMIZERS = {"adamw", "adamw-foreach", "adamw-fused", "sgd-momentum"}
"""Features that are an optimizer: ``training`` has each."""
FEATURES = sorted(ALL.keys() - WITHIN - OPTIMIZERS)
ALIKE = {
    "alexnet",
    "bert",
    "encoder_lm",
    "hf_bert",
    "hf_gpt2",
    "hf_llama",
    "hf_mixtral",
    "hf_vit",
    "llama",
    "rnn_lm",
    "similarity_treelstm",
    "unrolled_rnn",
}
"""Examples whose layers others have, too."""


@pytest.mark.parametrize("name", some_slow(sorted({*NAMES} - SIZES - {*MUCH}), LARGE | LONG_CHAINS | ALIKE))
def test_examples_leave_the_same_behind(name: str) -> None:
    workload = find(name).load()
    policy = "dtr-eq" if name in LONG_CHAINS else POLICIES[NAMES.index(name) % 4]
    larger = {"batch": 64, "layers": 6} if name == "mlp" else {"batch": 12}
    squeezed(lambda: workload(**{**TINY[name], **larger}), policy, SHARES, steps=1)


@pytest.mark.parametrize("name", some_slow(FEATURES, {"gru"}))
def test_features_leave_the_same_behind(name: str) -> None:
    workload, settings = ALL[name]
    if workload is classifier:
        settings = {**settings, "batch": 64}
    squeezed(lambda: workload(**settings), POLICIES[FEATURES.index(name) % 4], SHARES)


@pytest.mark.parametrize("name", MUCH)
def test_much_is_computed_again(name: str) -> None:
    workload = find(name).load()
    tight = squeezed(lambda: workload(**{**TINY[name], "batch": 24}), "dtr-eq", (0.4, 0.5, 0.6, 0.7), recomputes=True)
    assert tight.usage is not None
    assert tight.usage.recomputations < 20 * tight.usage.ops
