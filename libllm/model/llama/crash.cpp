/* crash.cpp: ggml calls on_failed_assertion() before it aborts. If on_failed_assertion() throws, llmd's functions that
 * open a model or compute a step catch the exception. Thread-local flags say whether the thread is in one of these
 * functions and may throw. In another thread, for example of the thread pool, nobody would catch the exception, and the
 * process would end without the assertion's text. */
#include "model/llama/crash.h"

#include <ggml.h>
#include <signal.h>
#include <unistd.h>

#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

#include "machine/last_words.h"
#include "model/llama/llama_model.h"

namespace {

constexpr int SIGNALS[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};
constexpr size_t N_SIGNALS = sizeof SIGNALS / sizeof *SIGNALS;
constexpr size_t STACK_BYTES = 1 << 16;

thread_local bool is_opening, is_stepping;
const char *crash_notice; /* set before the signal handlers are installed, because they read it */
size_t n_notice;

/* Removes the file name and the line number, which do not help a user, from a message. An example of a message is
 * "/path/file.cpp:12: GGML_ASSERT(a == b) failed". */
std::string without_place(const char *message)
{
    const char *colon = strstr(message, ": ");
    return colon == nullptr ? message : colon + 2;
}

/* If the assertion says only "CUDA error" or "ROCm error", returns the driver's own error, which was logged before.
 * Otherwise returns "". */
std::string device_error_of(const char *message)
{
    const std::string said = without_place(message);
    return said == "CUDA error" || said == "ROCm error" ? model_llama_log_device_error() : "";
}

bool is_about_memory(const std::string &device_error)
{
    return device_error.find("out of memory") != std::string::npos ||
           device_error.find("allocation failed") != std::string::npos; /* cuBLAS */
}

/* ggml calls this function in the thread whose assertion failed, and aborts when the function returns. */
void on_failed_assertion(const char *message)
{
    const std::string device_error = device_error_of(message);
    if (is_opening) {
        throw std::runtime_error(device_error.empty()
                                     ? "the file contradicts itself (llama.cpp: " + without_place(message) + ")"
                                     : "the device fails (" + device_error + ")");
    }
    if (is_stepping && is_about_memory(device_error)) {
        throw std::runtime_error(device_error);
    }
    last_words_say(device_error.empty() ? message : device_error.c_str());
}

/* A signal handler may only call async-signal-safe functions. So on_crash uses no snprintf, no log and no exit(). */
void on_crash(int)
{
    ssize_t ignored = write(STDERR_FILENO, crash_notice, n_notice);
    ignored = write(STDERR_FILENO, "\n", 1);
    (void)ignored;
    _exit(1);
}

} // namespace

struct model_llama_opening::handlers {
    struct sigaction actions[N_SIGNALS];
    stack_t stack;
    std::vector<char> bytes; /* the handlers' own stack, because the crash may be an overflow of the thread's stack */
};

void model_llama_crash_init()
{
    ggml_set_abort_callback(on_failed_assertion);
}

model_llama_opening::model_llama_opening(const char *notice)
{
    if (notice == nullptr) {
        is_opening = true;
        return;
    }
    crash_notice = notice;
    n_notice = strlen(notice);
    old = std::make_unique<handlers>();
    old->bytes.resize(STACK_BYTES);
    stack_t stack = {};
    stack.ss_sp = old->bytes.data();
    stack.ss_size = old->bytes.size();
    sigaltstack(&stack, &old->stack);
    struct sigaction action = {};
    action.sa_handler = on_crash;
    action.sa_flags = SA_ONSTACK;
    for (size_t i = 0; i < N_SIGNALS; i++) {
        sigaction(SIGNALS[i], &action, &old->actions[i]);
    }
    is_opening = true; /* set last: if a line above throws, the destructor does not run, and the flag would stay true */
}

model_llama_opening::~model_llama_opening()
{
    is_opening = false;
    if (old == nullptr) {
        return;
    }
    for (size_t i = 0; i < N_SIGNALS; i++) {
        sigaction(SIGNALS[i], &old->actions[i], nullptr);
    }
    sigaltstack(&old->stack, nullptr);
}

model_llama_stepping::model_llama_stepping()
{
    is_stepping = true;
}

model_llama_stepping::~model_llama_stepping()
{
    is_stepping = false;
}
