"""Operators that move elements or rename axes: shapes, slices, joins, indices, padding, blocks."""
