"""TensorFlow 1 MetaGraphs: read with protocol buffers alone, sized, converted, priced, and compared with Catamount.

``reading`` has the file's messages and what of them is a training step, ``sizes`` and ``shapes`` every size as an
expression, ``building`` the Graph, ``rules`` the costs of its ops, ``catamount`` the table of another tool for them.
"""
