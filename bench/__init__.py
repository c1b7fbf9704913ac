"""Measurements behind the claims of the documentation. See docs/benchmarks.md."""
