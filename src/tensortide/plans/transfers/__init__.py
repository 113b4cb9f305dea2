"""Planning with transfers: which storages move, over which link and when, and what is recomputed beside that.

``search`` finds plans of a sequence of ops: ``choosing`` chooses what moves in it, ``mixing`` changes the sequence, so
that what cannot move unnoticed is recomputed; ``exact`` solves small steps. ``bound`` and ``windows`` prove how good a
plan is.
"""
