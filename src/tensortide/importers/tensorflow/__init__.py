"""Graphs of TensorFlow as files and functions have them: read, sized, converted, and priced.

What MetaGraphs of TensorFlow 1 and functions and SavedModels of TensorFlow 2 share. No framework is imported.
"""
