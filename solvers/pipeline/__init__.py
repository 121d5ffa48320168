"""Solvers for the pipeline problem."""
