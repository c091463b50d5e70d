"""Fuzzing with invalid and unusual files.

Each file runs in a separate process with limited memory and time. ``python -m tests.qa.fuzz`` mutates tables
(``structure``) and bytes (``raw``) of the models of the conformance cases until time is up, and minimizes each file
with an unexpected outcome. ``python -m tests.qa.fuzz FILE ...`` tests single files.
"""
