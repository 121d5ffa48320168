"""Walks among list schedules: quick lists, their changes, and the same in C."""
