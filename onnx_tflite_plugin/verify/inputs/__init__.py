"""Inputs of both runtimes: random arrays or a user's own, in sizes and ranges that exercise the model."""
