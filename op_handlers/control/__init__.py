"""Operators that run other subgraphs."""
