"""A comparison of targets, asked from Python."""

from __future__ import annotations

import pytest

from tensortide.errors import RequestError
from tensortide.measures.differences.request import CompareRequest, answer
from tensortide.targets.requests import CaptureRequest


def test_targets_are_compared_each_at_its_own_settings() -> None:
    settings = CaptureRequest(set=("layers=2", "b:batch=8", "A:batch=4"))
    found = answer(CompareRequest(targets=("mlp", "mlp"), reference="b", threshold=("flops=+1%",), capture=settings))
    assert (found.base.letter, found.base.name) == ("B", "mlp")
    (step,) = found.steps
    assert step is not None
    assert step.root.difference.flops < 0
    assert not found.exceeded


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"targets": ("mlp",)}, "two steps or more"),
        ({"targets": ("mlp", "mlp"), "reference": "C"}, "--reference takes one of A, B, not 'C'"),
        ({"targets": ("mlp", "mlp"), "capture": CaptureRequest(set=("C:a=1",))}, "there is no step C, only A, B"),
        ({"targets": ("mlp", "mlp"), "threshold": ("peak",)}, "--threshold.*with a sign"),
    ],
)
def test_what_cannot_be_compared_is_no_request(options: dict[str, object], words: str) -> None:
    with pytest.raises(RequestError, match=words):
        CompareRequest(**options)  # type: ignore[arg-type]
