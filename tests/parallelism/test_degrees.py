"""Degrees: the process groups of ranks."""

from __future__ import annotations

import itertools

import pytest

from tensortide.parallelism import Degrees

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
