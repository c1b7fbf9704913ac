/* crash.h: turns llama.cpp's failed assertions into errors where that is safe, and crashes into a last sentence.
 * llama.cpp calls abort() when an assertion fails, so a bad file would end a process that serves others.
 *
 *   while a thread opens a model   an assertion is an exception in that thread, and the model is refused: nearly all
 *                                  such assertions are about the contents of the file
 *   in a step                      an assertion about a device without free memory is an exception: the step fails. Any
 *                                  other ends the process: nobody knows what a half-done step has left in the memory
 *                                  that other sessions use
 *   anywhere else                  it ends the process; the log names the step that was going on (machine/last_words.h)
 *
 * A crash (a signal) cannot be undone. If the caller gives a notice, it ends the process with that sentence and status
 * 1, instead of a core dump without a word. */
#ifndef LLM_MODEL_LLAMA_CRASH_H
#define LLM_MODEL_LLAMA_CRASH_H

#include <memory>

void model_llama_crash_init(); /* once per process, before anything of llama.cpp runs */

/* As long as an object of this class lives, its thread opens a model. With a notice, one at a time, since signal
 * handlers belong to the process. */
class model_llama_opening {
  public:
    /* `notice`: written to stderr before the process ends with status 1, if any thread crashes; NULL: signals keep
     * their handlers. The text must outlive this object. */
    explicit model_llama_opening(const char *notice);
    ~model_llama_opening();
    model_llama_opening(const model_llama_opening &) = delete;
    model_llama_opening &operator=(const model_llama_opening &) = delete;

  private:
    struct handlers;
    std::unique_ptr<handlers> old; /* NULL: none were replaced */
};

/* As long as an object of this class lives, its thread computes a step. The backends of CUDA and ROCm report a lack of
 * memory by an assertion, Vulkan's throws. */
class model_llama_stepping {
  public:
    model_llama_stepping();
    ~model_llama_stepping();
    model_llama_stepping(const model_llama_stepping &) = delete;
    model_llama_stepping &operator=(const model_llama_stepping &) = delete;
};

#endif
