"""Times of a step, predicted, measured or read; steps in a row, stationary or not; rates of the machine at hand."""
