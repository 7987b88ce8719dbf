"""One file per hashing method; `bitfleet.tasks.registry` lists them by name."""
