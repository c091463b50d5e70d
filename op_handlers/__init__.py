"""The built-in op pack: a folder a family, a module of what belongs together in it. The core imports none of it."""
