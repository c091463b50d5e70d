"""Converted models processed by other tools, with results before and after.

Each tool has a separate environment.
"""
