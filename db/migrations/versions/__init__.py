"""Migrations of the plan database."""
