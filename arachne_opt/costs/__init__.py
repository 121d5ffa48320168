"""Cost models: how long a task runs and how much memory it needs, by degree and device type."""
