"""What the repository needs beside the package: what generates what is checked in, and wheels for the models in them. Not in the wheel."""
