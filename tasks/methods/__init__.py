"""The hashing methods, one file each."""
