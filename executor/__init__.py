"""Replay of plans with torch."""
