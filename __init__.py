"""bitfleet: learn compact binary codes for vector collections too large for one machine."""

__version__ = "0.1.0"
