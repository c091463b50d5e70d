"""Properties of a converted model, for its writers and readers: unique names, metadata, validity."""
