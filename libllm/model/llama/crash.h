/* crash.h: what becomes of llama.cpp's failed assertions and crashes. While a thread opens a model, an assertion
 * is an exception there and the model is refused: most of them are about what the file says. In a step, one that is about a
 * device without free memory is an exception; any other ends the process, since nobody knows what it has left. A crash
 * cannot be undone; where the caller wants it, it ends the process with a sentence instead of a debugger. */
#ifndef LLM_MODEL_LLAMA_CRASH_H
#define LLM_MODEL_LLAMA_CRASH_H

#include <memory>

void model_llama_crash_init(); /* once per process, before anything of llama.cpp runs */

/* As long as it lives, its thread opens a model. One at a time. */
class model_llama_opening {
  public:
    /* `notice`: written to stderr before the process ends with status 1 when any thread crashes; NULL: crashes stay what
     * they are. Must outlive this. */
    explicit model_llama_opening(const char *notice);
    ~model_llama_opening();
    model_llama_opening(const model_llama_opening &) = delete;
    model_llama_opening &operator=(const model_llama_opening &) = delete;

  private:
    struct handlers;
    std::unique_ptr<handlers> old; /* NULL: none were replaced */
};

/* As long as it lives, its thread computes a step. CUDA's driver and ROCm's run out of memory by an assertion. */
class model_llama_stepping {
  public:
    model_llama_stepping();
    ~model_llama_stepping();
    model_llama_stepping(const model_llama_stepping &) = delete;
    model_llama_stepping &operator=(const model_llama_stepping &) = delete;
};

#endif
