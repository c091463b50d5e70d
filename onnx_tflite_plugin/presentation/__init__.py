"""Descriptions of a converted model: inputs, outputs, metadata, code that runs it."""
