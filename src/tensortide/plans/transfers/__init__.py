"""Plans that move storages over links to tiers of memory and back, beside recomputation.

``greedy`` chooses what moves in a step of any size, on the engines that ``ledger`` reserves over time; ``ondemand``
has a plan wherever ops fit one by one; ``exact`` solves small steps; ``search`` keeps the best of all; ``bound`` says
how good it is. Times and bytes are those of ``plans.events``.
"""
