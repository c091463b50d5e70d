"""Cases of ``op_handlers.sequence.lstm``."""
