"""Cases of ``op_handlers.matrix``."""
