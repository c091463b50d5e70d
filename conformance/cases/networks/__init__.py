"""Cases of several operators together, for which no module of ``op_handlers`` stands."""
