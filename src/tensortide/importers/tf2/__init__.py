"""TensorFlow 2: SavedModels, read without TensorFlow, and live functions through their concrete functions.

Both are graphs that ``importers.tensorflow`` reads: here a signature is chosen, and variables get their names.
"""
