"""The event loop's side of libllm."""
