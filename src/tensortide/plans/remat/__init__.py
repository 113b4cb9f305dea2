"""A step as an online rematerialization policy meets it, and the policies."""
