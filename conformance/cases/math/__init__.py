"""Cases of ``op_handlers.math``."""
