"""LSTMs: handlers, float and integer cells, and the cell with five operands."""
