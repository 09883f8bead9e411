"""The graph IR from Python."""
