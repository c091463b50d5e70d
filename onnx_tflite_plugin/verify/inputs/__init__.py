"""What both runtimes are fed: drawn arrays or a user's own, in sizes and widths that exercise the model."""
