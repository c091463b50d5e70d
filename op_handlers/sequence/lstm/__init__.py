"""LSTMs: handlers, time steps of a cell in float and in integers, and the cell with five operands."""
