"""Converted models processed by other tools, each in a separate environment; results are compared before and after."""
