"""Cases of ``op_handlers.refused``."""
