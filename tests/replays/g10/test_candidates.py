"""Moves of policies as plans: legal by the event rules, as an independent judge of plans sees them."""

from __future__ import annotations

import itertools
import random

import pytest

from tensortide.errors import PlanError
from tensortide.plans.events import play
from tensortide.plans.instance import Instance
from tensortide.plans.model import Compute
from tensortide.plans.transfers.residences import steps_of
from tensortide.replays.g10.candidates import Candidate, tokens_of
from tensortide.replays.g10.outcome import Move
from tests.plans.events.judge import assert_judged_alike
from tests.plans.transfers.drawn import training_step


def random_moves(chance: random.Random, instance: Instance) -> tuple[Move, ...]:
    """A move in some idle period of each storage that has one, or around the step."""
    found = []
    for number, storage in enumerate(instance.storages):
        uses = [op for op, row in enumerate(instance.ops) if number in row.touches]
        gaps = [(one + 1, two) for one, two in itertools.pairwise(uses) if two > one + 1]
        if gaps and chance.random() < 0.7:
            out, needed = chance.choice(gaps)
            found.append(Move(number, chance.choice(("host", "ssd")), out, chance.randint(out, needed), needed))
        elif storage.persistent and uses:
            found.append(Move(number, "host", uses[-1] + 1, chance.randint(0, uses[0]), uses[0], around=True))
    return tuple(found)


@pytest.mark.parametrize("links", [1, 2])
def test_moves_become_legal_plans_that_run_each_op_once(links: int) -> None:
    for seed in range(60):
        chance = random.Random(seed)
        step = training_step(chance, links=links, recompute=False)
        moves = random_moves(chance, step)
        ahead = chance.choice((0, 1, 3, 100))
        tokens, home = tokens_of(step, Candidate("drawn", moves, ahead))
        assert [token.op for token in tokens if isinstance(token, Compute)] == list(range(len(step.ops)))
        steps = steps_of(step, tokens)
        try:
            played = play(step, steps, home=home)
        except PlanError:
            assert links > 1  # the drawn host has room for little
            continue
        assert_judged_alike(step, steps, home, None, played)
        moved = {move.tensor for move in moves}
        assert {token.storage for token in tokens if not isinstance(token, Compute)} == moved


def test_a_fetch_precedes_what_needs_it_by_no_more_than_it_may() -> None:
    step = training_step(random.Random(5), recompute=False, layers=3)
    first = next(s for s, row in enumerate(step.storages) if s in step.ops[0].makes)
    uses = [op for op, row in enumerate(step.ops) if first in row.touches]
    out, needed = uses[1] + 1, uses[-1]
    for ahead in (0, 1, needed):
        tokens, _ = tokens_of(step, Candidate("one", (Move(first, "host", out, 0, needed),), ahead))
        ops = [token.op if isinstance(token, Compute) else None for token in tokens]
        copy, fetch = (place for place, op in enumerate(ops) if op is None)
        assert ops[copy + 1] == out or ops[copy + 1] is None
        following = next(op for op in ops[fetch:] if op is not None)
        assert following == max(out, needed - ahead)
