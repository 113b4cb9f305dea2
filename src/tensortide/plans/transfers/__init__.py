"""Plans that move storages over links to tiers of memory and back, beside recomputation.

``choosing`` has choices of what moves in a sequence, which ``kernels`` make, place by a ledger of bytes, and play;
``joint`` changes sequences, so that what cannot move unnoticed is recomputed; ``ondemand`` has a plan wherever ops fit
one by one; ``exact`` solves small steps; ``search`` keeps the best of all; ``bound`` says how good it is. Times and
bytes are those of ``plans.events``.
"""
