"""Small GGUF models with seeded random weights, one for each kind of memory llama.cpp has.

They hold no knowledge. They exist so that tests can run the real engine on a dense cache, a sliding window,
a recurrent state and a hybrid of both, within seconds and without a download.
"""
