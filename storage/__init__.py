"""What is kept: datasets, codes, models, checkpoints, and ingestion of foreign formats."""
