"""Keras 3: ``.keras`` files, read layer by layer without Keras, and live models through the framework they run on.

``archive`` reads the file, ``model`` follows its layers, ``layers`` says what each of them computes, ``rules`` what
that costs; ``live`` hands a model to the importer of its backend.
"""
