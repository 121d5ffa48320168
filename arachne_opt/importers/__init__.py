"""Readers of the files that users have."""
