/* threads.cpp: the threads that compute steps. A step waits for its slowest thread. If other processes need the cores,
 * a thread may wait for a core in the middle of a step. All other threads then wait for this thread. So machine/team.h
 * decides how many threads the next step gets. For example, with one other busy process on two cores, a token took 110
 * ms with two threads, and 97 ms with the number that team.h chose. team.h needs to know how long a thread was ready to
 * run but had no core. The kernel reports this time in the file /proc/self/task/ID/schedstat. Large steps use all
 * threads. The work of a large step is divided into small pieces. A slow thread computes fewer pieces, so the other
 * threads need not wait for it. */
#include <fcntl.h>
#include <ggml-backend.h>
#include <ggml-cpu.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <set>

#include "model/llama/llama_model.h"

namespace {

constexpr uint32_t N_TOKENS_SMALL = 32; /* most tokens of a small step; larger steps use all threads */
constexpr uint64_t MEASURED_US = 10000; /* each number of threads is measured for this time, and for at least two
                                         * steps */
constexpr uint64_t LONG_US = 100000;    /* if a step takes longer than this, it has work for every core, and fewer
                                         * threads are not tried */
constexpr double WORTH = 0.97;          /* more threads are used only if they make a step at least 3 % shorter */
constexpr double HOPELESS = 1.25;       /* if a step takes more than this times the best time, no smaller number of
                                         * threads is tried */
constexpr double SHARE_ALONE = 0.03;    /* if threads wait for cores longer than this share of the time, other processes
                                         * need the cores */

uint64_t now_us()
{
    const auto now = std::chrono::steady_clock::now().time_since_epoch();
    return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::microseconds>(now).count());
}

std::set<std::string> threads_of_process()
{
    std::set<std::string> ids;
    std::error_code error;
    for (const auto &entry : std::filesystem::directory_iterator("/proc/self/task", error)) {
        ids.insert(entry.path().filename());
    }
    return ids;
}

int open_waits(const std::string &thread)
{
    return open(("/proc/self/task/" + thread + "/schedstat").c_str(), O_RDONLY | O_CLOEXEC);
}

/* Returns how long a thread has been ready to run but had no core since the thread began. Returns 0 if the kernel does
 * not report this time. */
uint64_t waited_ns(int file)
{
    char text[64];
    const ssize_t n = file < 0 ? -1 : pread(file, text, sizeof text - 1, 0);
    unsigned long long ran = 0, waited = 0;
    if (n <= 0) {
        return 0;
    }
    text[n] = '\0';
    return sscanf(text, "%llu %llu", &ran, &waited) == 2 ? waited : 0;
}

} // namespace

model_llama_threads::~model_llama_threads()
{
    if (pool != nullptr) {
        model_llama_of_cpu<decltype(ggml_threadpool_free)>("ggml_threadpool_free")(pool);
    }
    for (const int file : waits) {
        close(file);
    }
    if (own_waits >= 0) {
        close(own_waits);
    }
}

void model_llama_threads::open(int32_t n)
{
    if (n_most > 0) {
        return;
    }
    set(n);
    n_most = n;
    const auto make = model_llama_of_cpu<decltype(ggml_threadpool_new)>("ggml_threadpool_new");
    if (n < 2 || make == nullptr) {
        return;
    }
    ggml_threadpool_params params = ggml_threadpool_params_default(n);
    params.poll = 0; /* lets threads sleep between steps */
    const std::set<std::string> before = threads_of_process();
    pool = make(&params);
    for (const std::string &thread : threads_of_process()) {
        const int file = before.count(thread) > 0 ? -1 : open_waits(thread);
        if (file >= 0) {
            waits.push_back(file);
        }
    }
}

uint64_t model_llama_threads::all_waited_ns()
{
    const pid_t caller = gettid();
    if (caller != own) {
        if (own_waits >= 0) {
            close(own_waits);
        }
        own = caller;
        own_waits = open_waits(std::to_string(caller));
    }
    uint64_t sum = waited_ns(own_waits);
    for (const int file : waits) {
        sum += waited_ns(file);
    }
    return sum;
}

void model_llama_threads::watch()
{
    watched_us = now_us();
    watched_waited_ns = all_waited_ns();
}

void model_llama_threads::adapt(int32_t n)
{
    const uint64_t ever_ns = all_waited_ns(); /* 0 if the kernel does not report it */
    const double waited_us = static_cast<double>(ever_ns - watched_waited_ns) / 1000;
    const bool was_alone = ever_ns > 0 && waited_us < SHARE_ALONE * static_cast<double>(now_us() - watched_us);
    team_open(&small, was_alone ? n : n_most, n);
    is_adaptive = true;
}

int32_t model_llama_threads::begin(uint32_t n_tokens)
{
    if (n_tokens > N_TOKENS_SMALL) {
        return n_most;
    }
    begun_us = now_us();
    begun_waited_ns = is_adaptive && n_most > 1 ? all_waited_ns() : 0;
    return team_size(&small);
}

void model_llama_threads::end(uint32_t n_tokens)
{
    if (n_tokens > N_TOKENS_SMALL || !is_adaptive || n_most < 2) {
        return;
    }
    const uint64_t now = now_us();
    const double waited_us = static_cast<double>(all_waited_ns() - begun_waited_ns) / 1000;
    const double n_idle = team_is_short(&small) ? idle_cores_lately(&idle, IDLE_CORES_STAT, now) : 0;
    team_learn(&small, n_tokens, static_cast<double>(now - begun_us), waited_us, n_idle, now);
}

namespace {

/* Returns the time of the shortest of several steps. An average would be too long, because other processes make some of
 * the steps longer. A single step is enough if this step takes longer than too_long_us. Returns 0 if a step failed. */
template <typename F> double shortest_us(double too_long_us, const F &step)
{
    double least = 0;
    const uint64_t begin_us = now_us();
    for (int n = 0; n < 2 || now_us() - begin_us < MEASURED_US; n++) {
        const uint64_t step_us = now_us();
        if (!step()) {
            return 0;
        }
        const double us = static_cast<double>(now_us() - step_us);
        least = n == 0 ? us : std::min(least, us);
        if (us > too_long_us) {
            break;
        }
    }
    return least;
}

} // namespace

/* Measures steps with n_most threads, then with fewer and fewer. One number of threads can be a little slower than the
 * numbers before and after it. So the search ends only after a step longer than HOPELESS times the best time. */
int32_t model_llama_best_size(int32_t n_most, const std::function<bool(int32_t)> &step)
{
    int32_t best = n_most;
    double best_us = 0;
    bool is_wider = true; /* for example, tries 16, 12, 8, 6, 4, 3, 2, 1 */
    for (int32_t n = n_most; n > 0; n = n < 4 ? n - 1 : is_wider ? n * 3 / 4 : n * 2 / 3, is_wider = !is_wider) {
        const double too_long_us = best_us > 0 ? HOPELESS * best_us : static_cast<double>(LONG_US);
        const double us = shortest_us(too_long_us, [&] { return step(n); });
        if (best_us > 0 && us * WORTH > best_us) {
            if (us > HOPELESS * best_us) {
                break;
            }
            continue;
        }
        best = n;
        best_us = best_us > 0 ? std::min(us, best_us) : us;
        if (us <= 0 || us > static_cast<double>(LONG_US)) {
            break;
        }
    }
    return best;
}
