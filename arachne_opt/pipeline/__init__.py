"""Problem 2: choose the pipelines that train a large model on a mixed cluster."""
