"""Cases of ``op_handlers.image``."""
