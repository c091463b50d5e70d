"""Operators that move elements or change shapes.

Among them are reshape, slice, concatenate, gather, pad and blocks.
"""
