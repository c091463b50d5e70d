"""Cases of ``op_handlers.stablehlo``."""
