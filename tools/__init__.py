"""Programs that generate files for the tests, the benchmarks and the documentation."""
