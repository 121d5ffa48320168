"""Offline learning: examples generated in parallel, policies trained, versioned and refused."""
