"""Cases of ``op_handlers.control``."""
