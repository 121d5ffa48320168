"""The pipeline runtime: stages, schedule, synchronisation and re-layout of a pipeline plan."""
