"""Plan the layout of each tensor at minimum cost, before anything is emitted."""
