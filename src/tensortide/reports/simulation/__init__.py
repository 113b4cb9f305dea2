"""Names of ops for the report of idle memory."""
