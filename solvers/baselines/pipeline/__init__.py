"""Rules of published pipeline planners, re-told; each chooses in its own space of plans."""
