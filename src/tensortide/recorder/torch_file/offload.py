"""Part of written files: hooks that move saved tensors to a pool in host memory, and back before they are used."""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Callable
from typing import Any

import torch

from tensortide.recorder.torch_file.applied import Applied

POOL_BYTES: int = 0
PLACES: tuple[tuple[int, int], ...] = ()
MOVED: dict[tuple[str, int], int] = {}
AHEAD: dict[tuple[str, int], tuple[int, ...]] = {}

# -- copied into files --


class Turn:
    """One forward pass, alive while one of its saved tensors is."""


class Slot:
    """Part of the pool that holds one storage, and the storage itself once it was fetched for the backward pass."""

    def __init__(self, at: torch.Tensor) -> None:
        self.at = at
        self.turn: Callable[[], Turn | None] = lambda: None
        self.tensors = self.version = 0
        self.fetched: torch.Tensor | None = None
        self.last_copy: Any = None

    @property
    def is_free(self) -> bool:
        """True if nothing will be read from here again."""
        return self.tensors <= 0 or self.turn() is None

    def leave(self) -> None:
        """One saved tensor less will be read from here."""
        self.tensors -= 1
        if self.tensors <= 0:
            self.fetched = None


class Away:
    """A saved tensor: in a ``place``, or itself where it has none."""

    def __init__(self, key: tuple[str, int], turn: Turn, tensor: torch.Tensor, place: Slot | None) -> None:
        self.key, self.turn, self.place, self.dtype = key, turn, place, tensor.dtype
        self.view = tuple(tensor.shape), tensor.stride(), tensor.storage_offset()
        self.tensor = tensor.detach() if place is None else None
        self.is_waiting = place is not None

    def leave(self) -> None:
        """It was read, or never will be: nothing differentiates what it was saved for."""
        if self.is_waiting and self.place is not None and self.place.turn() is self.turn:
            self.place.leave()
        self.is_waiting = False

    def __del__(self) -> None:
        self.leave()


class Offload:
    """Hooks that pack the saved tensors of the table, and only those, into a pool."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        cuda = device.type == "cuda"
        pool = torch.empty(POOL_BYTES, dtype=torch.uint8, pin_memory=cuda)
        self.places = [Slot(pool[start : start + size]) for start, size in PLACES]
        self.out: Any = torch.cuda.Stream(device) if cuda else None
        self.back: Any = torch.cuda.Stream(device) if cuda else None
        self.running: list[str] = []
        self.saved: Counter[str] = Counter()
        self.turn = Turn()

    def around(self, forward: Callable[..., Any]) -> Callable[..., Any]:
        """``forward`` under the hooks."""

        def run(*args: Any, **kwargs: Any) -> Any:
            self.saved.clear()
            self.turn = Turn()
            with torch.autograd.graph.saved_tensors_hooks(self.pack, self.unpack):
                return forward(*args, **kwargs)

        return run

    def pack(self, tensor: torch.Tensor) -> Any:
        """Put the storage of ``tensor`` into its place, if it has one that no other forward pass has taken."""
        name = self.running[-1] if self.running else ""
        key = (name, self.saved[name])
        self.saved[name] += 1
        place = self.places[MOVED[key]] if key in MOVED else None
        if place is not None and place.turn() is not self.turn:
            if place.is_free and tensor.untyped_storage().nbytes() == len(place.at):
                self.put(place, tensor)
            else:
                place = None
        elif place is not None and place.version != tensor._version:  # it was changed since its storage was copied
            place = None
        if place is None:
            return Away(key, self.turn, tensor, None) if key in AHEAD else tensor.detach()
        place.tensors += 1
        return Away(key, self.turn, tensor, place)

    def put(self, place: Slot, tensor: torch.Tensor) -> None:
        """Copy the storage of ``tensor`` into ``place``."""
        place.turn, place.tensors, place.fetched = weakref.ref(self.turn), 0, None
        place.version = tensor._version
        with torch.no_grad():
            whole = tensor.detach().as_strided((len(place.at) // tensor.element_size(),), (1,), 0)
            self.copy(self.out, place, place.at.view(tensor.dtype), whole)

    def fetch(self, place: Slot) -> torch.Tensor:
        """Begin to bring a storage back, if that has not begun."""
        if place.fetched is None:
            place.fetched = torch.empty(len(place.at), dtype=torch.uint8, device=self.device)
            self.copy(self.back, place, place.fetched, place.at)
        return place.fetched

    def copy(self, stream: Any, place: Slot, to: torch.Tensor, source: torch.Tensor) -> None:
        """Copy, beside the computation where there is a stream for it, after the last copy of ``place``."""
        if stream is None:
            to.copy_(source)
            return
        stream.wait_stream(torch.cuda.current_stream(self.device))
        if place.last_copy is not None:
            stream.wait_event(place.last_copy)
        with torch.cuda.stream(stream):
            to.copy_(source, non_blocking=True)
        (to if to.is_cuda else source).record_stream(stream)
        place.last_copy = stream.record_event()

    def unpack(self, saved: Any) -> Any:
        """The tensor that was packed, and the start of the transfers that the table has begin here."""
        if not isinstance(saved, Away):
            return saved
        for number in AHEAD.get(saved.key, ()):
            if self.places[number].turn() is saved.turn and self.places[number].tensors:
                self.fetch(self.places[number])
        place = saved.place
        if place is None:
            return saved.tensor
        if place.turn() is not saved.turn:
            raise RuntimeError("a later forward pass has taken the place of a saved tensor that is used again")
        storage = self.fetch(place)
        if place.last_copy is not None:
            torch.cuda.current_stream(self.device).wait_event(place.last_copy)
        saved.leave()
        return storage.view(saved.dtype).as_strided(*saved.view)


def offload_saved(model: torch.nn.Module, prefix: str, applied: Applied) -> None:
    """Run the forward pass of ``model`` under the hooks."""
    offload = Offload(next(model.parameters()).device)
    applied.follow(dict(model.named_modules(prefix=prefix.rstrip("."))), offload.running)
    applied.replace(model, "forward", offload.around(model.forward))
