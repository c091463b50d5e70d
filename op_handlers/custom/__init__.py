"""Custom operators, which a file names by text."""
