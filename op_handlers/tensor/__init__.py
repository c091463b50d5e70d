"""Operators that move elements or change shapes.

They include reshape, slice, concatenate, gather, pad and blocks.
"""
