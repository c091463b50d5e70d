"""What moves elements or renames axes: shapes, slices, joins, indices, paddings, blocks."""
