"""Live Keras models as metrics ask for them, on whatever framework Keras runs."""
