"""Operators that move elements or change shapes: reshape, slice, concatenate, gather, pad, blocks."""
