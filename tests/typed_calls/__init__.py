"""User code for mypy: each wrong keyword must be an error, or its ``type: ignore`` is reported as unused."""
