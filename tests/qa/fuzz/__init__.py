"""Fuzzing with invalid and odd files; each file runs in a separate process with limited memory and time.

``python -m tests.qa.fuzz`` mutates the models of the conformance cases, in their tables (``structure``) and in their bytes
(``raw``), until time is up, and minimizes each file that it finds. ``python -m tests.qa.fuzz FILE ...`` tries files.
"""
