"""A target, whatever it is, as a step with the durations of its ops: as the options of every verb ask for it."""
