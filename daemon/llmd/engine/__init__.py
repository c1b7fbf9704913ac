"""Python's interface to libllm: opens the engine, sends commands, receives events, and converts text."""
