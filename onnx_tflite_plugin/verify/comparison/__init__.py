"""Runs of both runtimes paired, and how far apart their results may be."""
