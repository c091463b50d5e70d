"""Code of users that mypy checks: of a wrong keyword it complains, or the comment that expects this is unused."""
