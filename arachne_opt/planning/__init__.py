"""Answers to planning requests: look up, warm-start, solve, check, store, plan ahead."""
