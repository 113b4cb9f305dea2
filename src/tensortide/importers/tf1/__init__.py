"""TensorFlow 1 MetaGraphs as steps: the row of the table, and the comparison with Catamount.

``importers.tensorflow`` reads, sizes, converts and prices their graphs; ``catamount`` is the table of another tool.
"""
