"""Bundled demonstration data: 10,000 handwritten digits."""
