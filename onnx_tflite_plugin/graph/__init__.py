"""What holds for a converted model whoever writes or reads it: unique names, its metadata, validity."""
