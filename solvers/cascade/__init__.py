"""Solvers of the cascade placement problem."""
