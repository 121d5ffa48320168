"""Formulations and search. Solvers read problems and return results; they know no database."""
