"""How long converted models take, against LiteRT: ``python -m benchmarks``. Not part of the wheel."""
