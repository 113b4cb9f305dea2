"""Plans that move storages over links to tiers of memory and back, beside recomputation.

``ledger`` reserves copy engines over time, ``greedy`` chooses what moves in a step of any size, ``exact`` solves small
steps to the optimum, ``planned`` takes the best of all. Times and bytes are those of ``plans.events``.
"""
