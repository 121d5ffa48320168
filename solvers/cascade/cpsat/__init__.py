"""The CP-SAT formulations of the cascade placement problem."""
