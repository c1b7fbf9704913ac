"""Measurements of the figures in the documentation. See docs/benchmarks.md."""
