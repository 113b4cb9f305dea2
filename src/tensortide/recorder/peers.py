"""Objects that the other processes of a pretended group would send: there are no others, so this one answers for them.

Ranks that run the same program send objects like those of this rank, which is what a gather returns. A stage of a
pipeline receives the shapes of another stage, which are taken to be those that this rank sent on or, for gradients,
those of its own outputs. Both are assumptions, and noted. Objects move no recorded bytes.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Iterator
from typing import Any

import torch.distributed as dist

from tensortide.errors import CaptureError
from tensortide.recorder.surroundings import replaced, replaced_in
from tensortide.recorder.torch_compat import STAGE_RECEIVES, gradients_of_stage

Note = Callable[[str], None]
_SAME = "objects that other ranks send are taken to be those of this one"
_STAGES = "tensors that other pipeline stages send are taken to have the shapes of those of this one"


def _copied(value: Any) -> Any:
    """A copy of a container, so that a program may change what each rank sent by itself."""
    return copy.copy(value) if isinstance(value, (dict, list, set)) else value


class _Peers:
    """Answers of the other ranks of all groups."""

    def __init__(self, note: Note) -> None:
        self._note = note
        self._sent: list[Any] = []
        """The list of objects that this rank has sent last to a single other one."""

    def all_gather_object(self, object_list: list[Any], obj: Any, group: Any = None) -> None:
        """Fill ``object_list`` with ``obj`` for each rank of ``group``."""
        self._note(_SAME)
        object_list[:] = [_copied(obj) for _ in range(dist.get_world_size(group))]

    def gather_object(
        self,
        obj: Any,
        object_gather_list: list[Any] | None = None,
        dst: int | None = None,
        group: Any = None,
        group_dst: int | None = None,
    ) -> None:
        """Fill ``object_gather_list`` of the rank that gathers."""
        if object_gather_list is not None and _is_this(dst, group_dst, group):
            self.all_gather_object(object_gather_list, obj, group)

    def broadcast_object_list(
        self,
        object_list: list[Any],
        src: int | None = None,
        group: Any = None,
        device: Any = None,
        group_src: int | None = None,
    ) -> None:
        """Leave ``object_list`` as it is: the rank that broadcasts has it, and others may have it, too."""
        del device
        if _is_this(src, group_src, group):
            return
        if object_list and all(each is None for each in object_list):
            raise _unknown("broadcast_object_list", src if group_src is None else group_src)
        self._note(_SAME)

    def scatter_object_list(
        self,
        scatter_object_output_list: list[Any],
        scatter_object_input_list: list[Any] | None = None,
        src: int | None = None,
        group: Any = None,
        group_src: int | None = None,
    ) -> None:
        """Take the object of this rank, if it has those of all."""
        if scatter_object_input_list is None:
            raise _unknown("scatter_object_list", src if group_src is None else group_src)
        if not _is_this(src, group_src, group):
            self._note(_SAME)
        scatter_object_output_list[0] = scatter_object_input_list[dist.get_rank(group)]

    def send_object_list(self, object_list: list[Any], *to: Any, **options: Any) -> None:
        """Remember what is sent."""
        del to, options
        self._sent = list(object_list)

    def recv_object_list(self, object_list: list[Any], src: int | None = None, *_: Any, **options: Any) -> int:
        """Receive what this rank has sent last. Returns the rank that would have sent it."""
        sender = src if src is not None else options.get("group_src", 0)
        if len(self._sent) != len(object_list):
            raise _unknown("recv_object_list", sender)
        self._note(_SAME)
        object_list[:] = map(_copied, self._sent)
        return sender or 0

    def stage_shapes(self, stage: Any, sender: int) -> Any:
        """Receive the shapes that another stage of a pipeline sends: those of inputs, or of gradients if it is the
        next."""
        self._note(_STAGES)
        if sender > stage.stage_index:
            return gradients_of_stage(stage)
        received: list[Any] = [None]
        self.recv_object_list(received, sender)
        return received[0]


def _is_this(rank: int | None, in_group: int | None, group: Any) -> bool:
    """True if a rank, given globally or as one of ``group`` (None: rank 0), is this one."""
    if in_group is not None:
        return bool(dist.get_rank(group) == in_group)
    return bool(dist.get_rank() == (rank or 0))


def _unknown(call: str, sender: int | None) -> CaptureError:
    return CaptureError(
        f"rank {dist.get_rank()} of {dist.get_world_size()} waits for objects of rank {sender or 0} ({call}), which is "
        "not there to send them: capture that rank, or give this one what it needs without asking"
    )


OBJECTS = (
    *("all_gather_object", "gather_object", "broadcast_object_list", "scatter_object_list"),
    *("send_object_list", "recv_object_list"),
)
"""Functions of ``torch.distributed`` that exchange objects."""


@contextlib.contextmanager
def answering(note: Note) -> Iterator[None]:
    """Answer for the other ranks while active. ``note`` receives what is assumed."""
    peers = _Peers(note)

    def received(stage: Any, sender: int) -> Any:
        return peers.stage_shapes(stage, sender)

    with contextlib.ExitStack() as stack:
        for owner in (dist, dist.distributed_c10d):
            for name in OBJECTS:
                if hasattr(owner, name):
                    stack.enter_context(replaced(owner, name, getattr(peers, name)))
            if hasattr(owner, "monitored_barrier"):
                stack.enter_context(replaced(owner, "monitored_barrier", dist.barrier))
        stages, receive = STAGE_RECEIVES
        stack.enter_context(replaced_in(stages, receive, received))
        yield
