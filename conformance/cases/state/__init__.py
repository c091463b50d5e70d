"""Cases of ``op_handlers.state``."""
