"""Where it runs: launching and connecting to Dask, tree reduction, worker checks."""
