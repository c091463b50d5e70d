"""Times of a model in both runtimes, whole and per operator."""
