"""What a model remembers from run to run."""
