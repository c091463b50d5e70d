"""How long a model takes in both runtimes, and which operators take it."""
