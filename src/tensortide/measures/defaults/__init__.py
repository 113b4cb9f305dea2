"""The default set of metrics, one file per question; every ``@metric`` function in them is registered."""
