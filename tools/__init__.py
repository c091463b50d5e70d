"""What is generated for the repository, and checked by its tests. Not in the wheel."""
