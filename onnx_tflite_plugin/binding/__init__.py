"""Binding of operators to handlers, with their declarations.

This package does not know where handlers come from.
"""
