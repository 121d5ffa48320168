"""Problem 1: place the encode and denoise tasks of one iteration on the devices of a cluster."""
