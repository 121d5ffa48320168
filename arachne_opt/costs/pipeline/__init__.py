"""Prices for the pipeline problem: from measured tables, estimates and analytic models."""
