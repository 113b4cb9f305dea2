"""The one-op programs of the reference data, each on fake and on real tensors."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch

from tensortide.cost import count
from tests.cost.probe import capture, counted
from tests.cost.programs import PROGRAMS
from tests.reference import reference_folder

NEEDS_VALUES = {"MoE index loop top1", "quantized dynamic Linear int8"}
ACTIVE = "F.sdpa causal"
CUSTOM = "custom_op matmul"
"""Has no rule until it is given one: test_wrong_numbers.py."""


def cases() -> list[dict[str, Any]]:
    loaded: list[dict[str, Any]] = json.loads((reference_folder() / "counters" / "micro_cases.json").read_text())
    return [case for case in loaded if case["op"] != CUSTOM]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("real", [False, True], ids=["fake", "real"])
@pytest.mark.parametrize("case", cases(), ids=lambda case: case["op"])
def test_micro_case(case: dict[str, Any], real: bool) -> None:
    name = case["op"]
    if name in NEEDS_VALUES and not real:
        pytest.skip("needs values of tensors to run at all")
    found = counted(PROGRAMS[name], real=real)
    assert found.total.unknown_ops == 0
    assert (found.total.cost.active_macs if name == ACTIVE else found.total.macs) == case["macs"]
    if "elementwise_flops" in case:
        assert found.total.cost.elementwise_flops == case["elementwise_flops"]


def test_every_case_has_a_program() -> None:
    assert {case["op"] for case in cases()} == set(PROGRAMS)


@pytest.mark.parametrize(
    "name", ["F.sdpa (default)", "MHA eval,no_grad", "TransformerEncoderLayer eval", "LSTM 1-layer"]
)
def test_routes_agree(name: str) -> None:
    """Real, fake and meta tensors, whatever kernels they choose."""
    macs = {counted(PROGRAMS[name], real=real).total.macs for real in (False, True)}

    def on_meta() -> Any:
        with torch.device("meta"):
            return PROGRAMS[name]()

    assert {*macs, count(capture(on_meta)).total.macs} == macs
    assert len(macs) == 1
