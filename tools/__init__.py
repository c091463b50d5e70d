"""Tools of the repository: generators of checked-in files, downloads of models.

Not part of the wheel.
"""
