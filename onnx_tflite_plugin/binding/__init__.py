"""A model whose operators have their handlers, and what those declare; nothing here knows where handlers come from."""
