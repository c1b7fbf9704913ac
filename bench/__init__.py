"""Measures the figures that the documentation states. See docs/benchmarks.md."""
