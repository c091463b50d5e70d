"""Converted models processed by other tools, each in a separate environment; results before and after are compared."""
