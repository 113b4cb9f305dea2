"""The options by which training stacks take their degrees of parallelism, and a launch command with other values."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from typing import NamedTuple


class Stack(NamedTuple):
    """A training stack: words that its commands have, and its option for each degree. ``launcher``: the options are
    those of its launcher, right after the word that ends so, with ``needs``. ``why_not`` says why it has none."""

    name: str
    words: str
    options: Mapping[str, str]
    launcher: str = ""
    needs: tuple[str, ...] = ()
    why_not: str = ""


STACKS = (
    Stack(
        "torchtitan",
        r"torchtitan|--parallelism\.\w+",
        {
            "tensor": "--parallelism.tensor_parallel_degree",
            "pipeline": "--parallelism.pipeline_parallel_degree",
            "context": "--parallelism.context_parallel_degree",
            "expert": "--parallelism.expert_parallel_degree",
            "data": "--parallelism.data_parallel_shard_degree",
            "micro_batch": "--training.local_batch_size",
        },
    ),
    Stack(
        "Megatron",
        r"pretrain_\w+\.py|--tensor-model-parallel-size",
        {
            "tensor": "--tensor-model-parallel-size",
            "pipeline": "--pipeline-model-parallel-size",
            "context": "--context-parallel-size",
            "expert": "--expert-model-parallel-size",
            "micro_batch": "--micro-batch-size",
        },
    ),
    Stack(
        "Accelerate",
        r"accelerate[ -]launch",
        {
            "tensor": "--parallelism_config_tp_size",
            "context": "--parallelism_config_cp_size",
            "data": "--parallelism_config_dp_shard_size",
        },
        launcher="launch",
        needs=("--use_parallelism_config", "true"),
    ),
    Stack("DeepSpeed", r"\bdeepspeed\b", {}, why_not="DeepSpeed has its degrees in its configuration file"),
)
"""The stacks; the first whose words a command has is its own."""


def stack_of(command: str) -> Stack | None:
    """The stack of a launch command; None for one that is not known."""
    return next((stack for stack in STACKS if re.search(stack.words, command)), None)


def with_degrees(command: str, stack: Stack, degrees: Mapping[str, int]) -> str:
    """The command with these degrees in place of its own.

    Examples:
        >>> with_degrees("torchrun pretrain_gpt.py --context-parallel-size 4", STACKS[1], {"context": 2, "tensor": 2})
        'torchrun pretrain_gpt.py --context-parallel-size 2 --tensor-model-parallel-size 2'
    """
    words = shlex.split(command)
    for degree, value in degrees.items():
        option = stack.options[degree]
        at = next((place for place, word in enumerate(words) if word.partition("=")[0] == option), None)
        if at is None:
            words[(at := _end(words, stack)) : at] = [option, str(value)]
        elif "=" in words[at]:
            words[at] = f"{option}={value}"
        else:
            words[at + 1 : at + 2] = [str(value)]
    if stack.needs and stack.needs[0] not in words:
        words[(at := _end(words, stack)) : at] = stack.needs
    return shlex.join(words)


def _end(words: list[str], stack: Stack) -> int:
    """The place of a further option: behind the launcher that takes it, else at the end."""
    if not stack.launcher:
        return len(words)
    return next(place for place, word in enumerate(words) if word.endswith(stack.launcher)) + 1
