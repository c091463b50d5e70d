"""Cases of several operators, which correspond to no module of ``op_handlers``."""
