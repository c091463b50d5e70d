"""Normalization of models: shapes, dtypes, requested sizes, and submodels.

Missing and stale shapes and dtypes of the file are corrected.
"""
