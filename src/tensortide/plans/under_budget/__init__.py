"""The fastest plan of a step under a budget of bytes, with a proven bound.

The search works on planning instances and knows no simulator: ``studies.planning`` hands it the plans that others have
found.
"""
