"""Lists of the ops of every vocabulary, and which of them have a cost rule and, where an importer needs it, a shape."""
