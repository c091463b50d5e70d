"""Cases of ``op_handlers.fusions``."""
