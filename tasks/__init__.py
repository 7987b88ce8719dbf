"""What one worker computes on one block: kernels, accumulators, one file per method."""
