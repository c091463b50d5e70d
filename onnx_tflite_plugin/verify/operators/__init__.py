"""Operator by operator: where two models part, and what a whole model's outputs do not show."""
