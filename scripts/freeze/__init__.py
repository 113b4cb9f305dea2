"""What the program answers, as one sorted text of figures under stable names (``python -m scripts.freeze``)."""
