"""Objects that the other processes of a pretended group would send: there are no others, so this one answers for them.

What a rank that ran before has sent is received as it was. Ranks that run the same program send objects like those of
this rank, which is what a gather returns. A stage of a pipeline receives the shapes of another stage, which are taken
to be those that this rank sent on or, for gradients, those of its own outputs, while that stage has not run; and a rank
that is not captured sends what one at its place in another group sent. All are
assumptions, and noted. Objects move no recorded bytes.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Iterator
from typing import Any

import torch.distributed as dist

from tensortide.errors import CaptureError
from tensortide.recorder.messages import ALL, Channel, Messages
from tensortide.recorder.surroundings import replaced, replaced_in
from tensortide.recorder.torch_compat import STAGE_RECEIVES, gradients_of_stage, rank_of_stage

Note = Callable[[str], None]
_SAME = "objects that other ranks send are taken to be those of this one"
_LIKE = "ranks that were not captured are taken to send what ranks at their places in other groups sent"
_STAGES = "tensors that other pipeline stages send are taken to have the shapes of those of this one"


def _copied(value: Any) -> Any:
    """A copy of a container, so that a program may change what each rank sent by itself."""
    return copy.copy(value) if isinstance(value, (dict, list, set)) else value


class _Peers:
    """Answers of the other ranks of all groups."""

    def __init__(self, note: Note, messages: Messages) -> None:
        self._note = note
        self._messages = messages
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
        if object_gather_list is not None and _global(dst, group_dst, group) == dist.get_rank():
            self.all_gather_object(object_gather_list, obj, group)

    def broadcast_object_list(
        self,
        object_list: list[Any],
        src: int | None = None,
        group: Any = None,
        device: Any = None,
        group_src: int | None = None,
    ) -> None:
        """Receive what the rank that broadcasts has sent, or leave ``object_list`` as it is if that did not run: others
        may have it, too."""
        del device
        channel = _channel(_global(src, group_src, group), ALL, group)
        if channel.sender == dist.get_rank():
            self._messages.send(channel, object_list)
            return
        sent, objects = self._receive(channel)
        if sent:
            object_list[:] = objects
            return
        if object_list and all(each is None for each in object_list):
            raise self._unknown("broadcast_object_list", channel)
        self._note(_SAME)

    def scatter_object_list(
        self,
        scatter_object_output_list: list[Any],
        scatter_object_input_list: list[Any] | None = None,
        src: int | None = None,
        group: Any = None,
        group_src: int | None = None,
    ) -> None:
        """Take the object of this rank, from the list of the rank that scatters or from its own."""
        channel = _channel(_global(src, group_src, group), ALL, group)
        objects = scatter_object_input_list
        if channel.sender == dist.get_rank():
            self._messages.send(channel, objects)
        else:
            sent, received = self._receive(channel)
            objects = received if sent else objects
            if not sent and objects is not None:
                self._note(_SAME)
        if objects is None:
            raise self._unknown("scatter_object_list", channel)
        scatter_object_output_list[0] = objects[dist.get_rank(group)]

    def send_object_list(
        self, object_list: list[Any], dst: int | None = None, group: Any = None, *_: Any, **options: Any
    ) -> None:
        """Keep what is sent."""
        self._sent = list(object_list)
        to = _global(dst, options.get("group_dst"), group)
        self._messages.send(_channel(dist.get_rank(), to, group), self._sent)

    def recv_object_list(
        self, object_list: list[Any], src: int | None = None, group: Any = None, *_: Any, **options: Any
    ) -> int:
        """Receive what the sender has sent to this rank, or what this rank has sent last if that did not run. Returns
        the rank of the sender."""
        channel = _channel(_global(src, options.get("group_src"), group), dist.get_rank(), group)
        sent, objects = self._receive(channel)
        if not sent:
            if len(self._sent) != len(object_list):
                raise self._unknown("recv_object_list", channel)
            self._note(_SAME)
            objects = list(map(_copied, self._sent))
            self._messages.guess(channel, objects)
        object_list[:] = objects
        return channel.sender

    def stage_shapes(self, stage: Any, sender: int) -> Any:
        """Receive the shapes that another stage of a pipeline sends: those of inputs, or of gradients if it is the
        next."""
        channel = _channel(rank_of_stage(stage, sender), dist.get_rank(), stage.group)
        sent, objects = self._receive(channel)
        if not sent:
            if sender > stage.stage_index:
                objects = [gradients_of_stage(stage)]
            elif len(self._sent) == 1:
                objects = self._sent
            else:
                raise self._unknown("recv_object_list", channel)
            self._note(_STAGES)
            self._messages.guess(channel, objects)
        return objects[0]

    def _receive(self, channel: Channel) -> tuple[bool, Any]:
        """Return True and the next message of a channel, or False if nothing was sent."""
        found = self._messages.receive(channel)
        if found[0] and not self._messages.sent.get(channel):
            self._note(_LIKE)
        return found

    def _unknown(self, call: str, channel: Channel) -> CaptureError:
        self._messages.lack(channel)
        return CaptureError(
            f"rank {dist.get_rank()} of {dist.get_world_size()} waits for objects of rank {channel.sender} ({call}), "
            "which is not there to send them: capture that rank, or give this one what it needs without asking"
        )


def _global(rank: int | None, in_group: int | None, group: Any) -> int:
    """A rank that is given globally or as one of ``group`` (neither: rank 0)."""
    world: Any = dist.group.WORLD
    return (rank or 0) if in_group is None else dist.get_global_rank(world if group is None else group, in_group)


def _channel(sender: int, receiver: int, group: Any) -> Channel:
    return Channel(sender, receiver, tuple(dist.get_process_group_ranks(group)))


OBJECTS = (
    *("all_gather_object", "gather_object", "broadcast_object_list", "scatter_object_list"),
    *("send_object_list", "recv_object_list"),
)
"""Functions of ``torch.distributed`` that exchange objects."""


@contextlib.contextmanager
def answering(note: Note, messages: Messages) -> Iterator[None]:
    """Answer for the other ranks while active, by their ``messages`` as far as they ran. ``note`` receives what is
    assumed."""
    peers = _Peers(note, messages)

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
