"""The built-in op pack: one file a family, one handler an operator. The core imports none of it."""
