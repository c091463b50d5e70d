"""Planning which order each tensor lies in, at least cost, before anything is emitted."""
