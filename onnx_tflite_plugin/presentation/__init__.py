"""Descriptions of a converted model for its users: inputs, outputs, metadata, and code that runs it."""
