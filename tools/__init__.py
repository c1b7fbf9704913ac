"""Programs that make what the tests and benchmarks need."""
