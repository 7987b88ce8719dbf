"""What the user calls: job files, the round loop, estimators, evaluation, the report, the command line."""
