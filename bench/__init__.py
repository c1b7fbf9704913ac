"""Programs that measure the figures in the documentation. docs/benchmarks.md explains these figures."""
