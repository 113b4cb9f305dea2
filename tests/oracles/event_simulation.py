"""The rules of the player once more, instant by instant: the oracle of queues that share lanes and places.

Nothing is computed ahead: at each instant everything begins that can, until nothing can, and time goes on to the next
end. It shares nothing with the player but the form of its tasks.
"""

from __future__ import annotations

from collections import deque

from tensortide.play import FREE, RUN, Places, Tasks


class Simulation:
    """Tasks of several queues, played. ``issue``, ``start`` and ``end`` are -1 of those that wait for ever; a MOVE has
    no lane here and needs nothing, as ``plans.events`` writes them for several devices. ``ties``: requests of one place
    at one instant by different queues, whose order no rule says."""

    def __init__(self, t: Tasks, lanes: int, places: Places) -> None:
        self.t, self.places, self.now = t, places, 0
        self.issue, self.start, self.end = ([-1] * len(t.kind) for _ in range(3))
        self.level, self.peak, self.busy = [*places.held], [*places.held], [0] * lanes
        pairs = zip(t.queue_ends, t.queue_ends[1:], strict=False)
        self.queues = [deque(t.order[first:last]) for first, last in pairs]
        self.asked: list[deque[int]] = [deque() for _ in places.capacity]
        self.pending: list[int] = []
        self.ties = 0
        self._last: dict[tuple[int, int], deque[int]] = {}
        while True:
            while self._release() or any(self._issue(queue) for queue in self.queues if queue):
                pass
            later = [end for end in self.end if end > self.now]
            if not later:
                return
            self.now = min(later)

    def _over(self, task: int) -> bool:
        """True if all that a task needs has ended."""
        needs = self.t.need[self.t.need_ends[task] : self.t.need_ends[task + 1]]
        return all(0 <= self.end[need] <= self.now for need in needs)

    def _release(self) -> bool:
        for task in self.pending:
            if self._over(task):
                self.pending.remove(task)
                self.start[task] = self.end[task] = self.now
                if self.t.place[task] >= 0:
                    self.level[self.t.place[task]] -= self.t.nbytes[task]
                return True
        return False

    def _issue(self, queue: deque[int]) -> bool:
        """Issue the next task of a queue, if that can be now."""
        task = queue[0]
        kind, lane, place = self.t.kind[task], self.t.lane[task], self.t.place[task]
        if kind == RUN and not (self._over(task) and (lane < 0 or self.busy[lane] <= self.now)):
            return False
        if kind != FREE and place >= 0 and not self._room(task, place, queue):
            return False
        queue.popleft()
        self.issue[task] = self.now
        if kind == FREE:
            self.pending.append(task)
            return True
        self.start[task], self.end[task] = self.now, self.now + self.t.ns[task]
        if lane >= 0:
            self.busy[lane] = self.end[task]
        return True

    def _room(self, task: int, place: int, queue: deque[int]) -> bool:
        """Take room, if those that asked before have it, and there is any."""
        if task not in self.asked[place]:
            self.asked[place].append(task)
            self.ties += self._last.setdefault((place, self.now), queue) is not queue
        nbytes = self.t.nbytes[task]
        if self.asked[place][0] != task or self.level[place] + nbytes > self.places.capacity[place]:
            return False
        self.asked[place].popleft()
        self.level[place] += nbytes
        self.peak[place] = max(self.peak[place], self.level[place])
        return True
