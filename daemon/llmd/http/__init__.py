"""The HTTP interface of the daemon. The parts of each API, such as OpenAI's, are in dialects/."""
