"""Normalization of models: missing and stale shapes and dtypes, requested sizes, and submodels."""
