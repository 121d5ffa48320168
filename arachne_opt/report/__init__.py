"""Pictures and traces of plans and runs."""
