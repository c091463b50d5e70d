"""Tools of the repository: generators of checked-in files, and wheels of models.

Not in the wheel.
"""
