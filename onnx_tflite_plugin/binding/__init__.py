"""Binding of operators to handlers, with their declarations, independent of where handlers come from."""
