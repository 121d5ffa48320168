"""Learned costs: features, networks, training, hold-out reports."""
