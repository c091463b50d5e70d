"""A conversion as one web page: what went in, what came out, where it is exact and where the time goes."""
