"""Comparisons with peers on public instances; above solvers and importers, below the commands."""
