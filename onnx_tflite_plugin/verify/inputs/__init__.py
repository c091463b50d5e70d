"""Inputs of both runtimes: random arrays, or a user's own."""
