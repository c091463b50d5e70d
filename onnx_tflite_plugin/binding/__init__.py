"""Binding of operators to handlers, with their declarations.

It does not depend on where handlers come from.
"""
