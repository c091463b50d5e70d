"""Built-in op pack: one folder per operator family, one module per topic.

The core does not import it.
"""
