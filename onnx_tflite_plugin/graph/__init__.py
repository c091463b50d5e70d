"""Properties of a converted model: unique names, metadata, validity."""
