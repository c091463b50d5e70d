"""How the kernels compute, for handlers of several modules: helpers alone, no handler."""
