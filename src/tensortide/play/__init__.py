"""The player of events: tasks on lanes, in queues or by rank, with room in places; when each begins and ends."""

from __future__ import annotations

from tensortide.play.lists import played
from tensortide.play.tasks import FREE, MOVE, NOWHERE, RUN, UNLIMITED, Places, Record, Rules, TaskList, Tasks

__all__ = [
    "FREE",
    "MOVE",
    "NOWHERE",
    "RUN",
    "UNLIMITED",
    "Places",
    "Record",
    "Rules",
    "TaskList",
    "Tasks",
    "played",
]
