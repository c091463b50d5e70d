"""Converted models in the hands of other tools: each in an environment of its own, results compared before and after."""
