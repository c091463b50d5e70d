"""Cases of networks of several operators."""
