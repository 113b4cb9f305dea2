"""TensorFlow Lite flat buffers: inference models, read with a small reader of our own that checks every offset.

``buffer`` reads tables, ``schema`` the model in them, ``convert`` makes the Graph, ``rules`` price its ops.
"""
