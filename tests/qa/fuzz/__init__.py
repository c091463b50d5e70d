"""Broken and odd files: what happens to each, in a process of its own with bounded memory and time.

``python -m tests.qa.fuzz`` mutates the models of the conformance cases, in their tables (``structure``) and in their bytes
(``raw``), until time is up, and makes what it finds as small as it can. ``python -m tests.qa.fuzz FILE ...`` tries files.
"""
