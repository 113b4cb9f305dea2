"""Training of the constants and corrections that are shipped: no user of the package does it."""
