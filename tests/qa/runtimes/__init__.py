"""Converted models in other runtimes: outcomes, and their table in the docs."""
