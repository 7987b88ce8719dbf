"""Foreign file formats, one reader a file."""
