"""Fast kernels, each with its plain NumPy reference."""
