"""Stateful operators: resource variables and hash tables."""
