/* crash.h: turns failed assertions of llama.cpp into errors where this is safe, and reports crashes. When an assertion
 * fails, llama.cpp calls abort(). So without this code, one bad file would end a process that serves other requests.
 * What a failed assertion does depends on the work of its thread:
 *
 * - Opening a model: the assertion becomes an exception, and the model is refused. Nearly all these assertions are
 *   about the contents of the file.
 * - Computing a step: if the cause is a lack of device memory, the assertion becomes an exception, and the step fails.
 *   Otherwise the process ends, because an incomplete step may have damaged memory that other sessions use.
 * - All other work: the process ends. The log names the current step (machine/last_words.h).
 *
 * A crash (a signal) always ends the process. If the caller gives a notice, the process writes this notice and ends
 * with status 1, instead of dumping core without a message. */
#ifndef LLM_MODEL_LLAMA_CRASH_H
#define LLM_MODEL_LLAMA_CRASH_H

#include <memory>

void model_llama_crash_init(); /* called once per process, before any code of llama.cpp runs */

/* While an object of this class exists, the thread that made it opens a model, and failed assertions in this thread
 * become exceptions. Only one object with a notice can exist at a time, because signal handlers belong to the
 * process. */
class model_llama_opening {
  public:
    /* If any thread crashes, `notice` is written to stderr, and the process ends with status 1. If `notice` is NULL,
     * signal handlers are not replaced. `notice` must outlive this object. */
    explicit model_llama_opening(const char *notice);
    ~model_llama_opening();
    model_llama_opening(const model_llama_opening &) = delete;
    model_llama_opening &operator=(const model_llama_opening &) = delete;

  private:
    struct handlers;
    std::unique_ptr<handlers> old; /* NULL if no handlers were replaced */
};

/* While an object of this class exists, the thread that made it computes a step. During the step, an assertion that
 * fails for lack of device memory becomes an exception. CUDA and ROCm report a lack of memory by a failed assertion.
 * Vulkan throws an exception itself, and needs no object of this class. */
class model_llama_stepping {
  public:
    model_llama_stepping();
    ~model_llama_stepping();
    model_llama_stepping(const model_llama_stepping &) = delete;
    model_llama_stepping &operator=(const model_llama_stepping &) = delete;
};

#endif
