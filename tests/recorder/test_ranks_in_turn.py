"""Ranks that run one after the other, with the messages of those before."""

from __future__ import annotations

import pytest
import torch.distributed as dist

from tensortide.errors import CaptureError
from tensortide.graph import Graph, GraphBuilder
from tensortide.recorder.messages import ALL, Channel, Messages
from tensortide.recorder.ranks import as_rank
from tensortide.recorder.ranks_in_turn import in_turn
from tensortide.recorder.script_launch import place_of

PAIR = (0, 1)


def step() -> Graph:
    return GraphBuilder().build()


def test_a_rank_that_assumed_another_message_than_was_sent_runs_again() -> None:
    received: list[object] = []

    def capture(rank: int, messages: Messages) -> Graph:
        messages.begin(rank)
        if rank == 1:
            messages.send(Channel(1, 0, PAIR), "real")
            return step()
        found, value = messages.receive(Channel(1, 0, PAIR))
        if not found:
            value = "assumed"
            messages.guess(Channel(1, 0, PAIR), value)
        received.append(value)
        return step()

    assert in_turn(capture, 0, lambda rank, graph: (1 - rank,)).keys() == {0, 1}
    assert received == ["assumed", "real"]


def test_a_last_rank_runs_after_all_others_and_needs_no_chain_of_its_own() -> None:
    order: list[tuple[int, object]] = []

    def capture(rank: int, messages: Messages) -> Graph:
        messages.begin(rank)
        group = (rank % 2, 2 + rank % 2)
        if rank < 2:
            messages.send(Channel(rank, rank + 2, group), "shape")
            order.append((rank, None))
        else:
            order.append((rank, messages.receive(Channel(rank - 2, rank, group))[1]))
        return step()

    found = in_turn(capture, 0, lambda rank, graph: (2,) if rank == 0 else (), last=[3])
    assert order == [(0, None), (2, "shape"), (3, "shape")]
    assert found.keys() == {0, 2, 3}


def test_ranks_that_never_agree_are_an_error() -> None:
    runs = [0, 0]

    def capture(rank: int, messages: Messages) -> Graph:
        messages.begin(rank)
        runs[rank] += 1
        messages.receive(Channel(1 - rank, rank, PAIR))
        messages.guess(Channel(1 - rank, rank, PAIR), "never sent")
        messages.send(Channel(rank, 1 - rank, PAIR), runs[rank])
        return step()

    with pytest.raises(
        CaptureError, match=r"rank 0 was captured 9 times, and each time assumed another .* rank 1 sends"
    ):
        in_turn(capture, 0, lambda rank, graph: (1 - rank,))


def test_a_rank_that_did_not_run_sends_what_its_like_in_another_group_sent() -> None:
    messages, noted = Messages(), list[str]()
    messages.begin(0)
    messages.send(Channel(0, ALL, PAIR), ["of group 0"])
    with as_rank(place_of(4, 3), noted.append, messages):
        group = dist.new_group([2, 3])
        found = [None]
        dist.broadcast_object_list(found, src=2, group=group)
    assert found == ["of group 0"]
    assert noted == ["ranks that were not captured are taken to send what ranks at their places in other groups sent"]
    assert messages.receive(Channel(3, ALL, (2, 3))) == (False, None)  # another place
