"""Cases of ``op_handlers.tensor``."""
