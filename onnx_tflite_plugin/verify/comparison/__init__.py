"""Comparison of the results of both runtimes, and the tolerances."""
