/* logits_probe.h: returns the logits that an engine keeps at the end of a prompt. Tests compare the logits of a warm
 * session with those of a cold session. Clients never see logits, so this code reads libllm's structs directly. It
 * calls no function of libllm. So tests in Python can load it together with any build of libllm
 * (tests/live/logits.py). */
#ifndef LOGITS_PROBE_H
#define LOGITS_PROBE_H

#include "llm.h"

/* Returns the n_vocab logits after the first n_tokens tokens of a session of owner 0 that has one branch. Returns NULL
 * if no such logits are kept. Called only while the engine is idle. The engine owns the logits, which are valid until
 * its next command. */
LLM_API const float *probe_logits(const llm_engine *engine, const char *session, uint32_t n_tokens);

#endif
