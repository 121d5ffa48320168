"""Learned policies turned into hints and columns."""
