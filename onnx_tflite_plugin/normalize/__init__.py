"""Sizes: those of graph inputs changed, what follows from them for other tensors, and the names of open ones."""
