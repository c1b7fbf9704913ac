"""What the documentation claims, measured. See docs/benchmarks.md."""
