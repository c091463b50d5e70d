"""LSTM: the handlers, one time step of a cell, the same in int8, and the cell of five operands."""
