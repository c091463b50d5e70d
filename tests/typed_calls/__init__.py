"""User code for mypy, in which each wrong keyword must be an error.

Otherwise its ``type: ignore`` is reported as unused.
"""
