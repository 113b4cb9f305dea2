"""Experiments as files: trials that are told apart, run in processes of their own, summarized and compared."""
