"""Degrees: the process groups of ranks, and what a configuration shares with them."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from msgspec.structs import replace

from tensortide.errors import DegreesError
from tensortide.parallelism import Degrees
from tensortide.parallelism.closed import Configuration, Transformer, shipped
from tensortide.parallelism.closed.columns import Step, layer_of
from tensortide.parallelism.closed.configuration import objections
from tensortide.parallelism.degrees import DEGREES
from tensortide.timing.collectives import nodes_of

SEVERAL = [
    Degrees(data=d, tensor=t, pipeline=p, context=c, expert=x)
    for d, t, p, c, x in itertools.product((1, 2, 6), (1, 3), (1, 2), (1, 4), (1, 2, 4))
    if d * c % x == 0
]


def shared(one: Degrees, stage: int, replica: int, tensor: int) -> dict[str, tuple[object, ...]]:
    """What the ranks of each group have in common, of the rank at these coordinates."""
    return {
        "world": (),
        "tensor": (stage, replica),
        "pipeline": (replica, tensor),
        "data": (stage, tensor),
        "context": (stage, tensor, replica // one.context),
        "expert": (stage, tensor, replica // one.expert),
        "expert_data": (stage, tensor, replica % one.expert),
    }


@pytest.mark.parametrize("degrees", SEVERAL, ids=str)
def test_groups_are_the_ranks_that_have_the_rest_of_their_place_in_common(degrees: Degrees) -> None:
    """Ranks are numbered by stage, replica (data, then context) and tensor; experts divide the replicas in blocks."""
    sizes = degrees.pipeline, degrees.replicas, degrees.tensor
    places = [shared(degrees, *place) for place in itertools.product(*map(range, sizes))]
    for rank, own in enumerate(places):
        found = {name: tuple(i for i, place in enumerate(places) if place[name] == own[name]) for name in own}
        assert degrees.groups(rank) == found


@pytest.mark.parametrize("degrees", SEVERAL, ids=str)
def test_groups_of_a_stage_are_those_of_its_ranks(degrees: Degrees) -> None:
    inner = degrees.replicas * degrees.tensor
    for name, groups in degrees.groups_of_stage().items():
        assert groups == tuple(dict.fromkeys(degrees.groups(rank)[name] for rank in range(inner)))


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        *((name, 0, f"{name} is 0: it is at least 1") for name in DEGREES),
        ("tensor", 2.5, "tensor is 2.5: it is a whole number"),
        ("data", True, "data is True: it is a whole number"),
        ("zero", 4, "zero is 4: it is 0 to 3"),
    ],
)
def test_degrees_and_configurations_name_a_fault_in_the_same_words(field: str, value: Any, message: str) -> None:
    with pytest.raises(DegreesError) as raised:
        Degrees(**{field: value})
    one = replace(Configuration(batch=1), **{field: value})
    assert str(raised.value) == message == next(objections(one, Transformer(layers=1, hidden=1, heads=1)))


def test_a_configuration_has_the_degrees_that_it_says() -> None:
    own: dict[str, Any] = {"data": 2, "tensor": 3, "pipeline": 5, "context": 7, "expert": 14, "sequence": True}
    own |= {"zero": 1, "zero_group": 7}
    one = Configuration(batch=2 * 4 * 3, micro_batch=4, **own)
    assert one.degrees == Degrees(**own, micro_batches=3)
    assert (one.devices, one.replicas, one.shards) == (2 * 3 * 5 * 7, 14, 7)


def test_the_name_of_a_layer_does_not_depend_on_where_fields_are_declared() -> None:
    one = Configuration(batch=8, micro_batch=2, tensor=2, recompute="none", sequence=True)
    step = Step(Transformer(layers=4, hidden=64, heads=8), one, nodes_of("A100-SXM-80GB"))
    assert layer_of(step) == "A100-SXM-80GB hidden=64 heads=8 micro_batch=2 recompute=none sequence=True tensor=2"
    step = step._replace(
        shape=Transformer(layers=4, hidden=1024, heads=16, seq=1024), configuration=replace(one, sequence=False)
    )
    assert layer_of(step) in shipped().factors
