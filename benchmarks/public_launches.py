"""The closed form of `scale` against launches of public training stacks.

    python benchmarks/public_launches.py [--write]

Each launch of `reference/launches` that the closed form can say is predicted from its configuration alone: FSDP of
llm-foundry, fms-fsdp and torchtitan, and Megatron Core. *Bias* is the mean of the signed errors; *held* the share of
measured steps in the 80 % interval. The speed of attention is fitted to llm-foundry's steps on A100-80s and H100s, and
the products of an H100 to the latter; no constant is fitted to the others. torchtitan's H100s run at 500 W.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

import harness
import numpy as np

from tensortide.parallelism.closed import predict_step
from tests.parallelism.launches import Launch, launches
from tests.parallelism.tables import megatron_core
from tests.reference import reference_folder

MICRO_BATCH = 2


def measured_steps() -> Iterator[Launch]:
    yield from launches(reference_folder())
    for case in megatron_core(MICRO_BATCH):
        yield Launch(case.name, f"Megatron Core, {case.step.nodes.device.name}", case.step, case.seconds)


def measure(run: harness.Run) -> None:
    table = run.table(
        {
            "stack": "{stack}",
            "launches": "{count}",
            "bias": "{bias:+.1%}",
            "error, mean": "{mean:.1%}",
            "worst": "{worst:+.0%}",
            "held": "{held:.0%}",
            "log width": "{width:.2f}",
        },
        key=("stack",),
        title="Closed form against launches",
    )
    stacks: dict[str, list[tuple[float, float, float]]] = defaultdict(list)
    for launch in measured_steps():
        time, ns = predict_step(*launch.step).time, launch.seconds * 1e9
        stacks[launch.stack].append((time.time_ns / ns - 1, time.low_ns <= ns <= time.high_ns, time.log_width))
    for stack, found in sorted(stacks.items()):
        errors, held, widths = np.array(found).T
        table.add(
            {
                "stack": stack,
                "count": len(errors),
                "bias": float(errors.mean()),
                "mean": float(np.abs(errors).mean()),
                "worst": float(errors[np.abs(errors).argmax()]),
                "held": float(held.mean()),
                "width": float(widths.mean()),
            }
        )


if __name__ == "__main__":
    harness.main(__doc__, measure)
