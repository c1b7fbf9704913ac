/* logits_probe.h: the logits that an engine keeps at the end of a prompt, for tests that compare those of a warm session with
 * those of a cold one. Clients never see logits, so this reads the engine's insides; it calls nothing of the library, so
 * that tests in Python can load it beside the one they test (tests/live/logits.py). */
#ifndef LOGITS_PROBE_H
#define LOGITS_PROBE_H

#include "llm.h"

/* The n_vocab logits after the first n_tokens tokens of a session of owner 0, which has one branch; NULL: none are kept.
 * Only while the engine has nothing to do; they are the engine's, until its next command. */
LLM_API const float *probe_logits(const llm_engine *engine, const char *session, uint32_t n_tokens);

#endif
