"""Video models that the executor can train."""
