"""Random small training steps with links: chains with skips, forward and backward, some with parameters and updates."""

from __future__ import annotations

import random
from fractions import Fraction

from tensortide.plans.instance import Instance, InstanceOp, InstanceStorage
from tensortide.timing.links import Link


def training_step(chance: random.Random, *, links: int = 1, recompute: bool = True, layers: int = 3) -> Instance:
    """A step of up to ``layers`` layers; ``recompute``: ops may run again. Bytes and times are of the same order."""
    storages: list[InstanceStorage] = []
    ops: list[InstanceOp] = []

    def storage(least: int, most: int, *, persistent: bool = False) -> int:
        storages.append(InstanceStorage(chance.randint(least, most), given=persistent, persistent=persistent))
        return len(storages) - 1

    def op(name: str, ns: int, reads: list[int], makes: list[int], writes: tuple[int, ...] = ()) -> None:
        workspace = chance.choice((0, 0, 0, chance.randint(1, 5)))
        used = tuple(sorted({*reads}))
        ops.append(InstanceOp(name, ns, used, writes, tuple(makes), workspace, once=not recompute))

    count = chance.randint(2, layers)
    weights = [storage(1, 5, persistent=True) if chance.random() < 0.4 else None for _ in range(count)]
    outputs: list[int] = []
    inputs: list[list[int]] = []
    for number, weight in enumerate(weights):
        skips = [outputs[-2]] if number > 1 and chance.random() < 0.3 else []
        inputs.append([*outputs[-1:], *skips, *([] if weight is None else [weight])])
        made = storage(2, 10)
        op(f"f{number}", chance.randint(3, 15), inputs[-1], [made])
        outputs.append(made)
    gradient = storage(1, 3)
    op("loss", chance.randint(1, 5), outputs[-1:], [gradient])
    for number in reversed(range(count)):
        weight, made = weights[number], storage(2, 10)
        op(f"b{number}", chance.randint(5, 35), [*inputs[number], gradient], [made])
        if weight is not None:
            op(f"u{number}", chance.randint(1, 5), [weight, made], [], (weight,))
        gradient = made
    rate = Fraction(10**9, chance.choice((1, 2, 4)))
    found = [Link("host", rate, chance.choice((0, 2, 5)), capacity_bytes=12 if links > 1 else None)]
    if links > 1:
        found.append(Link("ssd", rate / 4, 11, in_bytes_per_s=rate / 2))
    return Instance(tuple(ops), tuple(storages), tuple(found))
