/* log.cpp: llama.cpp reports the reason of a failure only in its log. This file stores the log's errors, for error
 * messages, and initializes the backends once per process. */
#include "model/llama/llama_model.h"

#include <common/log.h>
#include <ggml-backend.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#ifdef LLM_BACKEND_DL
#include <dlfcn.h>
#include <unistd.h>
#endif

#include "model/llama/crash.h"

namespace {

constexpr size_t LOG_BYTES_MAX = 8192;

struct log_state {
    std::mutex mutex;
    std::string errors;       /* whole lines of level error since the last clear, up to LOG_BYTES_MAX */
    std::string device_error; /* the last error such as "CUDA error: out of memory", without its end of line */
    char gpu_trouble[256] = "";
    bool is_shown = false;  /* true if LLMD_LLAMA_LOG is 1. The whole log is then written to stderr, too */
    bool is_error = false;  /* the last line is an error, so a continuation line belongs to this error */
    bool has_flash = false; /* whether the last context has flash attention, which llama.cpp reports only in its log */
};

/* The log_state is never destroyed, because llama.cpp's threads can log while the process ends. */
log_state &log_of_process()
{
    static log_state *state = new log_state;
    return *state;
}

/* llama.cpp calls this function in any of its threads. The level CONT (a continuation line) has a higher number than
 * ERROR. So levels are compared with == and not with >=. */
void on_log(ggml_log_level level, const char *text, void *)
{
    log_state &log = log_of_process();
    const std::lock_guard<std::mutex> hold(log.mutex);
    if (log.is_shown) {
        fputs(text, stderr);
    }
    if (level != GGML_LOG_LEVEL_CONT) {
        log.is_error = level == GGML_LOG_LEVEL_ERROR;
    }
    if (strstr(text, "Flash Attention enabled") != nullptr) {
        log.has_flash = true;
    }
    if (log.is_error && (strncmp(text, "CUDA error: ", 12) == 0 || strncmp(text, "ROCm error: ", 12) == 0)) {
        log.device_error = std::string(text).substr(0, strcspn(text, "\n"));
    }
    if (log.is_error && log.errors.size() + strlen(text) <= LOG_BYTES_MAX) {
        log.errors += text;
    }
}

#ifdef LLM_BACKEND_DL
/* Returns the folder of this library, or "" if the folder is not known. The folder also contains the backends. */
std::string folder()
{
    Dl_info info;
    if (dladdr(reinterpret_cast<void *>(&model_llama_backend_open), &info) == 0 || info.dli_fname == nullptr) {
        return "";
    }
    const std::string file = info.dli_fname;
    const size_t slash = file.rfind('/');
    return slash == std::string::npos ? "." : file.substr(0, slash);
}

/* Loads the backends of devices, and the variant of the CPU's backend that is best for this processor. */
void backends_load()
{
    const std::string from = folder();
    if (!from.empty()) {
        ggml_backend_load_all_from_path(from.c_str());
    }
}

#ifdef LLM_GPU
/* Returns why the backend for GPUs cannot be loaded, or "" if it can be loaded. The usual reason is a missing library.
 * llama.cpp does not log the reason. */
std::string backend_trouble()
{
    for (const char *name : {"cuda", "hip", "vulkan"}) {
        const std::string file = folder() + "/libggml-" + name + ".so";
        if (access(file.c_str(), F_OK) == 0 && dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL) == nullptr) {
            return dlerror();
        }
    }
    return "";
}
#endif
#endif

/* Stores for llm_gpu_trouble why a build for GPUs has found no GPU: the error in llama.cpp's log, or else the error of
 * loading the backend. Without this message, nobody would notice that such a build uses the CPU. */
void note_gpu_trouble()
{
#ifdef LLM_GPU
    for (size_t i = 0; i < ggml_backend_dev_count(); i++) {
        if (ggml_backend_dev_type(ggml_backend_dev_get(i)) != GGML_BACKEND_DEVICE_TYPE_CPU) {
            return;
        }
    }
    std::string cause = model_llama_log_cause();
#ifdef LLM_BACKEND_DL
    cause = cause.empty() ? backend_trouble() : cause;
#endif
    log_state &log = log_of_process();
    snprintf(log.gpu_trouble, sizeof log.gpu_trouble, "libllm is built for %s, which has found no device%s%s", LLM_GPU,
             cause.empty() ? "" : ": ", cause.c_str());
#endif
}

} // namespace

const char *model_llama_gpu_trouble(void)
{
    return log_of_process().gpu_trouble; /* does not change after the first engine was opened */
}

void model_llama_backend_open()
{
    static std::once_flag once;
    std::call_once(once, [] {
        const char *show = getenv("LLMD_LLAMA_LOG");
        log_of_process().is_shown = show != nullptr && strcmp(show, "1") == 0;
        setenv("GGML_NO_BACKTRACE", "1", 0); /* otherwise a failed assertion would start a debugger and wait for it */
        common_log_set_verbosity_thold(-1);  /* `common` has its own log, which would be written to stderr */
        llama_log_set(on_log, nullptr);
        model_llama_crash_init();
#ifdef LLM_BACKEND_DL
        backends_load();
#endif
        llama_backend_init();
        note_gpu_trouble();
    });
}

void model_llama_log_clear()
{
    log_state &log = log_of_process();
    const std::lock_guard<std::mutex> hold(log.mutex);
    log.errors.clear();
    log.has_flash = false;
}

std::string model_llama_log_device_error()
{
    log_state &log = log_of_process();
    const std::lock_guard<std::mutex> hold(log.mutex);
    return log.device_error;
}

bool model_llama_log_has_flash()
{
    log_state &log = log_of_process();
    const std::lock_guard<std::mutex> hold(log.mutex);
    return log.has_flash;
}

std::string model_llama_log_cause()
{
    log_state &log = log_of_process();
    const std::lock_guard<std::mutex> hold(log.mutex);
    const std::string first = log.errors.substr(0, log.errors.find('\n'));
    static const char *const marks[] = {
        "error loading model: ", "error loading model hyperparameters: ", "error loading model vocabulary: "};
    size_t start = 0;
    for (const char *mark : marks) {
        const size_t at = first.rfind(mark);
        if (at != std::string::npos) {
            start = std::max(start, at + strlen(mark));
        }
    }
    if (start == 0) {
        const size_t colon = first.find(": "); /* skips the name of the function that has logged the error */
        start = colon == std::string::npos ? 0 : colon + 2;
    }
    return first.substr(start);
}
