"""The plan database."""
