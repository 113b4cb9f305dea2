"""Annealing of placements, compiled: moves, placements seen so far, and the two halves of a step.

The kernel of a problem puts its simulator between ``chain.propose`` and ``chain.decide`` and so runs many steps without
coming back to Python; a problem without one is evaluated step by step, with the same results.
"""
