/* memory.cpp: decides how many KV cells a context gets. On a device, all cells take memory from the start. So the pool
 * must fit the free memory (model_llama_cells_plan). On the host, an unused cell is only reserved address space. A cell
 * takes memory when it is first used (cmake/llama/0005-kv-memory.patch). So every session can have cells for its full
 * context, and a budget limits the used memory (model_llama_reserve_plan). The bytes of a cell are not computed, but
 * measured on two contexts of different sizes, because each architecture has its own layers, windows and padding. */
#include "model/llama/llama_model.h"

#include <common/fit.h>
#include <sched.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <set>

#include "machine/cgroup.h"

namespace {

constexpr uint32_t CELLS_MAX = 1u << 30;
constexpr double HOST_SHARE = 0.4; /* if no budget is given, the state may take this share of the host's free memory.
                                    * Other processes need memory, too */
constexpr double DEVICE_SHARE = 0.9;

/* The bytes that a context with a certain number of cells would take on each device. The host is the last entry. */
struct measure : common_device_memory_data_vec {
    std::vector<ggml_backend_dev_t> devices; /* all entries except the host */

    bool is_host(size_t i) const
    {
        return i == devices.size();
    }

    /* Returns the share of the free memory that the state may take. */
    double share(size_t i) const
    {
        return is_host(i) || model_llama_is_integrated(devices[i]) ? HOST_SHARE : DEVICE_SHARE;
    }
};

measure measure_at(const char *path, const llama_model_params &weights, llama_context_params params, uint32_t n_ctx)
{
    params.n_ctx = n_ctx;
    measure out;
    uint32_t n_layers = 0, n_ctx_train = 0, n_experts = 0;
    common_device_memory_data_vec &bytes = out;
    bytes = common_get_device_memory_data(path, &weights, &params, out.devices, n_layers, n_ctx_train, n_experts,
                                          GGML_LOG_LEVEL_ERROR);
    return out;
}

uint64_t state_bytes(const measure &m)
{
    uint64_t bytes = 0;
    for (const common_device_memory_data &device : m) {
        bytes += device.context;
    }
    return bytes;
}

/* Returns the free bytes of the i-th device, or of the host. An integrated device has no memory of its own, so it has
 * at most the host's free bytes. */
uint64_t free_of(const measure &m, size_t i)
{
    if (m.is_host(i)) {
        return model_llama_memory_free();
    }
    const uint64_t n = static_cast<uint64_t>(std::max<int64_t>(0, m[i].free));
    return model_llama_is_integrated(m.devices[i]) ? std::min(n, model_llama_memory_free()) : n;
}

/* Returns the bytes that the state may take on each device. The weights are already loaded. On a device, their memory
 * is therefore no longer free. On the host, weights are mapped files. The system counts their memory as free although
 * it is needed. */
std::vector<uint64_t> budgets_of(const measure &m)
{
    std::vector<uint64_t> out;
    for (size_t i = 0; i < m.size(); i++) {
        const uint64_t available = free_of(m, i);
        const uint64_t needed = m[i].compute + (m.is_host(i) ? m[i].model : 0);
        const uint64_t left = available > needed ? available - needed : 0;
        out.push_back(static_cast<uint64_t>(static_cast<double>(left) * m.share(i)));
    }
    return out;
}

/* If `budget` is not 0, returns by how many bytes the state exceeds the budget. If `budget` is 0, returns for each
 * device by how many bytes the state exceeds the device's share. A returned number is negative if the state fits. */
std::vector<double> excess_of(const measure &m, uint64_t budget)
{
    if (budget != 0) {
        return {static_cast<double>(state_bytes(m)) - static_cast<double>(budget)};
    }
    std::vector<double> out;
    const std::vector<uint64_t> budgets = budgets_of(m);
    for (size_t i = 0; i < m.size(); i++) {
        out.push_back(static_cast<double>(m[i].context) - static_cast<double>(budgets[i]));
    }
    return out;
}

bool is_paid(const std::vector<double> &excess)
{
    return *std::max_element(excess.begin(), excess.end()) <= 0;
}

/* Returns the largest number of cells that fits. Assumes that bytes grow linearly with cells. n_low cells fit, and
 * n_high cells do not. `low` and `high` are the results of excess_of for n_low and n_high. */
uint32_t cells_paid(uint32_t n_low, const std::vector<double> &low, uint32_t n_high, const std::vector<double> &high)
{
    const double range = n_high - n_low;
    double n = range;
    for (size_t i = 0; i < low.size(); i++) {
        n = high[i] > 0 ? std::min(n, range * -low[i] / (high[i] - low[i])) : n;
    }
    return n_low + static_cast<uint32_t>(n) / MODEL_LLAMA_CELLS_STEP * MODEL_LLAMA_CELLS_STEP;
}

/* Refuses a context that cannot fit. An error message at the start is better than a process that the kernel's OOM
 * killer ends later. */
void check_fits(const measure &chosen)
{
    for (size_t i = 0; i < chosen.size(); i++) {
        const common_device_memory_data &device = chosen[i];
        const uint64_t available = free_of(chosen, i);
        const uint64_t needed = device.context + device.compute;
        if (device.context > 0 && needed > available) {
            char text[192];
            snprintf(text, sizeof text, "the sessions' state needs %llu MiB of %s memory, but %llu MiB are free",
                     static_cast<unsigned long long>(needed >> 20), chosen.is_host(i) ? "host" : "device",
                     static_cast<unsigned long long>(available >> 20));
            throw model_llama_no_room(text);
        }
    }
}

constexpr uint32_t N_SAMPLE = 4096; /* most tokens of a sequence in the larger of the two measured contexts */

uint64_t mib(uint64_t bytes)
{
    return bytes >> 20;
}

template <typename... Values> [[noreturn]] void no_room(const char *format, Values... values)
{
    char text[256];
    snprintf(text, sizeof text, format, values...);
    throw model_llama_no_room(text);
}

/* Bytes of host memory that a context with a certain number of cells takes. */
struct host_bytes {
    uint64_t model; /* mapped weights, which the system counts as free although they are needed */
    uint64_t context, compute;
};

/* Makes a real context over the loaded weights and measures the context. This takes 27 ms, and reserves addresses but
 * takes no memory. If the process may not reserve enough addresses, no context can be made. Then llama.cpp's own
 * measurement (measure_at) is used. measure_at loads the file twice without weights, which takes 520 ms with a
 * vocabulary of 151,936 tokens. */
host_bytes host_at(const char *path, const llama_model_params &loading, llama_model *weights,
                   llama_context_params params, uint32_t n_ctx)
{
    params.n_ctx = n_ctx;
    llama_context *context = llama_init_from_model(weights, params);
    if (context == nullptr) {
        model_llama_log_clear();
        const common_device_memory_data host = measure_at(path, loading, params, n_ctx).back();
        return {host.model, host.context, host.compute};
    }
    host_bytes out = {};
    uint64_t mapped_bytes = 0;
    uint64_t copied_bytes = 0; /* copies of weights in other layouts. mapped_bytes can contain the originals of these
                                * weights */
    for (const auto &[type, bytes] : llama_get_memory_breakdown(context)) {
        const bool is_host = ggml_backend_buft_is_host(type);
        (is_host ? mapped_bytes : copied_bytes) += bytes.model;
        out.context += is_host ? bytes.context : 0;
        out.compute += is_host ? bytes.compute : 0;
    }
    llama_free(context);
    const uint64_t all_bytes = llama_model_size(weights);
    out.model = std::min(mapped_bytes, all_bytes - std::min(all_bytes, copied_bytes));
    return out;
}

/* Computes the cost of tokens from the bytes of two contexts, with n_low and n_high tokens per sequence. In full
 * layers, which keep all tokens, bytes grow linearly with the tokens. In layers with a sliding window, bytes grow only
 * up to llama.cpp's size of a window: n_window plus a batch, padded. So each token of the smaller context takes bytes
 * in both kinds of layers. In the larger context, tokens beyond the window take bytes only in full layers. */
model_llama_cost cost_of(const host_bytes &low, const host_bytes &high, uint32_t n_low, uint32_t n_high,
                         uint32_t n_streams, const model_llama_wish &wish, uint32_t n_batch)
{
    const uint64_t grown = high.context - low.context;
    model_llama_cost cost;
    cost.n_window_tokens = wish.n_window > 0 ? model_llama_padded(wish.n_window + n_batch) : 0;
    if (n_streams == 1 || cost.n_window_tokens == 0 || cost.n_window_tokens >= n_high) {
        cost.n_window_tokens = 0;
        cost.token_bytes = grown / n_streams / (n_high - n_low);
        cost.fixed_bytes = low.context - cost.token_bytes * n_low * n_streams;
        return cost;
    }
    const uint64_t both = low.context / n_streams / n_low;
    const uint64_t full = high.context / n_streams;
    const uint64_t narrow = std::min(full, both * cost.n_window_tokens);
    cost.token_bytes = (full - narrow) / (n_high - cost.n_window_tokens);
    cost.window_token_bytes = both - std::min(both, cost.token_bytes);
    return cost;
}

/* Returns the most tokens of one sequence, up to n_max, that fit `budget`. The number is found by bisection, because
 * the cost of a model with a sliding window is not linear in the tokens. */
uint32_t tokens_for(const model_llama_cost &cost, uint64_t budget, uint32_t n_max)
{
    uint32_t least = 0, most = n_max;
    while (least < most) {
        const uint32_t n = least + (most - least + 1) / 2;
        if (cost.fixed_bytes + cost.of(n) <= budget) {
            least = n;
        } else {
            most = n - 1;
        }
    }
    return least;
}

/* Returns the index of a device that has too little memory for the context. Returns m.size() if all devices have
 * enough. */
size_t short_of(const measure &m, bool may_take_all)
{
    const auto is_short = [&](size_t i) {
        const double share = may_take_all ? 1 : m.share(i);
        return static_cast<double>(m[i].context + m[i].compute) > share * static_cast<double>(free_of(m, i));
    };
    size_t i = 0;
    while (i < m.size() && !is_short(i)) {
        i++;
    }
    return i;
}

/* Tests whether the process may reserve n_bytes of addresses. A limit (ulimit -v) can forbid this. A kernel with
 * vm.overcommit_memory 2 can forbid this, too, because such a kernel reserves no more addresses than it has memory
 * for. */
bool has_addresses(uint64_t n_bytes)
{
    void *at = mmap(nullptr, n_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED) {
        return false;
    }
    munmap(at, n_bytes);
    return true;
}

/* Sets out->budget and out->n_ctx. If wish.is_exact, n_ctx becomes wish.n_ctx. If wish.n_ctx tokens do not fit, throws
 * model_llama_no_room with a text that names the option to change. Otherwise n_ctx becomes the largest number of tokens
 * that the budget allows, up to wish.n_ctx. */
void share_out(const model_llama_wish &wish, const host_bytes &least, uint32_t n_seq, model_llama_reserve *out)
{
    const uint64_t n_free = model_llama_memory_free();
    const uint64_t needed = out->cost.fixed_bytes + least.compute;
    if (needed > n_free) {
        no_room("the state of one session needs %llu MiB of host memory, but %llu MiB are free", mib(needed),
                mib(n_free));
    }
    const uint64_t left = n_free - std::min(n_free, least.compute + least.model);
    const uint64_t whole = out->cost.fixed_bytes + n_seq * out->cost.of(wish.n_ctx);
    const uint64_t one = out->cost.fixed_bytes + out->cost.of(wish.n_ctx);
    uint64_t budget = wish.budget != 0 ? wish.budget : static_cast<uint64_t>(static_cast<double>(left) * HOST_SHARE);
    if (wish.is_exact && one > budget) {
        if (wish.budget != 0) {
            no_room("one session of %u tokens (--ctx-size) takes %llu MiB, but --kv-memory is %llu MiB, enough for %u "
                    "tokens",
                    wish.n_ctx, mib(one), mib(budget), tokens_for(out->cost, budget, wish.n_ctx));
        }
        budget = one;
    }
    out->budget = std::min(budget, whole);
    if (out->budget + least.compute > n_free) {
        no_room("%llu MiB for the KV cache and %llu MiB in addition are needed, but %llu MiB of host memory are free "
                "(--kv-memory and --ctx-size)",
                mib(out->budget), mib(least.compute), mib(n_free));
    }
    const uint32_t n_one = tokens_for(out->cost, out->budget, wish.n_ctx);
    out->n_ctx =
        wish.is_exact || n_one == wish.n_ctx ? wish.n_ctx : n_one / MODEL_LLAMA_CELLS_STEP * MODEL_LLAMA_CELLS_STEP;
    if (out->n_ctx < std::min(wish.n_ctx, MODEL_LLAMA_CELLS_STEP)) {
        no_room("%llu MiB for the KV cache (--kv-memory) are enough for %u tokens, but at least %u are needed",
                mib(out->budget), n_one, MODEL_LLAMA_CELLS_STEP);
    }
}

uint64_t memory_available()
{
    std::ifstream file("/proc/meminfo");
    std::string line;
    while (std::getline(file, line)) {
        unsigned long long kib = 0;
        if (sscanf(line.c_str(), "MemAvailable: %llu", &kib) == 1) {
            return kib * 1024;
        }
    }
    return UINT64_MAX / 4;
}

} // namespace

uint64_t model_llama_memory_free()
{
    return std::min(memory_available(), cgroup_memory_free(CGROUP_MOUNT, CGROUP_SELF));
}

void model_llama_size_check(uint64_t model_bytes, const std::vector<ggml_backend_dev_t> &devices)
{
    const uint64_t host_bytes = model_llama_memory_free();
    uint64_t device_bytes = 0;
    for (ggml_backend_dev_t device : devices) {
        size_t n_free = 0, n_total = 0;
        ggml_backend_dev_memory(device, &n_free, &n_total);
        /* an integrated device uses the host's memory, which is counted already */
        device_bytes += ggml_backend_dev_type(device) == GGML_BACKEND_DEVICE_TYPE_GPU ? n_free : 0;
    }
    if (model_bytes > host_bytes + device_bytes) {
        char text[256];
        const double gib = 1 << 30;
        snprintf(text, sizeof text,
                 "it takes %.1f GiB, but %.1f GiB of memory are available (--oversize allow loads it all the same, "
                 "and reads the rest from the disk for every token)",
                 static_cast<double>(model_bytes) / gib, static_cast<double>(host_bytes + device_bytes) / gib);
        throw model_llama_no_room(text);
    }
}

/* Counts cores and not hyperthreads. Hyperthreads of one core share its arithmetic units, so a second thread on the
 * core only slows down the first. */
int32_t model_llama_cores()
{
    cpu_set_t allowed;
    CPU_ZERO(&allowed);
    if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) {
        return 1;
    }
    std::set<std::string> cores;
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        if (!CPU_ISSET(cpu, &allowed)) {
            continue;
        }
        char path[96];
        snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/topology/thread_siblings_list", cpu);
        std::ifstream file(path);
        std::string siblings;
        cores.insert(std::getline(file, siblings) ? siblings : std::to_string(cpu));
    }
    const int32_t n = static_cast<int32_t>(std::max<size_t>(1, cores.size()));
    return std::min(n, cgroup_cores(CGROUP_MOUNT, CGROUP_SELF));
}

model_llama_cells model_llama_cells_plan(const char *path, const llama_model_params &weights,
                                         const llama_context_params &params, const model_llama_wish &wish)
{
    const auto at = [&](uint32_t n_cells) { return measure_at(path, weights, params, n_cells); };
    uint32_t n = params.n_ctx;
    measure chosen = at(n);
    std::vector<double> excess = excess_of(chosen, wish.budget);
    if (!is_paid(excess)) {
        const uint32_t one = model_llama_padded(wish.n_ctx);
        const uint32_t n_least = wish.is_exact ? one : std::min(one, MODEL_LLAMA_CELLS_STEP);
        const measure least = at(n_least);
        const std::vector<double> least_excess = excess_of(least, wish.budget);
        if (!is_paid(least_excess) && wish.budget != 0) {
            no_room(
                "%u slots (--max-sessions, --scratch-sessions) that share %u tokens (--ctx-size) take %llu MiB, but "
                "--kv-memory is %llu MiB",
                params.n_seq_max, n_least, mib(state_bytes(least)), mib(wish.budget));
        }
        /* The bytes of sliding windows do not grow linearly, so the estimate of cells_paid can be too large. Each round
         * of this loop removes at least twice as many cells as the round before. */
        for (uint32_t fewer = MODEL_LLAMA_CELLS_STEP; is_paid(least_excess) && !is_paid(excess); fewer *= 2) {
            n = std::min(cells_paid(n_least, least_excess, n, excess), n - std::min(fewer, n - n_least));
            chosen = at(n);
            excess = excess_of(chosen, wish.budget);
        }
        if (!is_paid(excess)) { /* even the smallest pool exceeds its share of the free memory. check_fits tests it
                                 * against the whole free memory */
            n = n_least;
            chosen = least;
        }
    }
    check_fits(chosen);
    return {n, state_bytes(chosen)};
}

bool model_llama_cells_halve(const model_llama_wish &wish, uint32_t *n_cells)
{
    const uint32_t half = *n_cells / 2;
    if (half < (wish.is_exact ? model_llama_padded(wish.n_ctx) : MODEL_LLAMA_CELLS_STEP)) {
        return false;
    }
    *n_cells = model_llama_padded(half);
    return true;
}

uint32_t model_llama_text_plan(const char *path, const llama_model_params &weights, llama_context_params params,
                               const model_llama_wish &wish)
{
    for (uint32_t n = wish.n_ctx;; n /= 2) {
        params.n_batch = params.n_ubatch = model_llama_padded(n);
        const measure m = measure_at(path, weights, params, model_llama_padded(n));
        const size_t i = short_of(m, wish.is_exact);
        if (i == m.size()) {
            return n;
        }
        if (wish.is_exact || n < 2 * MODEL_LLAMA_CELLS_STEP) {
            no_room("a text of %u tokens (--ctx-size) needs %llu MiB of %s memory, but %llu MiB are free", n,
                    mib(m[i].context + m[i].compute), m.is_host(i) ? "host" : "device", mib(free_of(m, i)));
        }
    }
}

model_llama_reserve model_llama_reserve_plan(const char *path, const llama_model_params &loading, llama_model *weights,
                                             const llama_context_params &params, const model_llama_wish &wish)
{
    const uint32_t n_seq = params.n_seq_max;
    const uint32_t n_streams = params.kv_unified ? 1 : n_seq;
    const uint32_t n_low = MODEL_LLAMA_CELLS_STEP;
    const uint32_t n_high = std::clamp(model_llama_padded(wish.n_ctx), 2 * n_low,
                                       std::max(N_SAMPLE, model_llama_padded(2 * wish.n_window)));
    const host_bytes low = host_at(path, loading, weights, params, n_low * n_streams);
    const host_bytes high = host_at(path, loading, weights, params, n_high * n_streams);
    model_llama_reserve out = {};
    out.cost = cost_of(low, high, n_low, n_high, n_streams, wish, params.n_ubatch);
    if (wish.is_stateful) {
        out.cost.fixed_bytes += out.cost.fixed_bytes / n_seq; /* one more state for model_llama_before_drafts */
    }
    share_out(wish, low, n_seq, &out);
    const uint64_t deep = std::max(high.compute, low.compute);
    const uint64_t compute_bytes = (deep - low.compute) / (n_high - n_low); /* scratch memory for each token of the
                                                                             * context */
    const auto reserved = [&](uint32_t n_ctx) {
        return out.cost.fixed_bytes + low.compute + compute_bytes * n_ctx +
               n_seq * out.cost.of(model_llama_padded(n_ctx));
    };
    while (!has_addresses(reserved(out.n_ctx))) {
        if (wish.is_exact || out.n_ctx < 2 * MODEL_LLAMA_CELLS_STEP) {
            no_room("%u sessions of %u tokens (--ctx-size) need %llu MiB of addresses, more than this process may have",
                    n_seq, out.n_ctx, mib(reserved(out.n_ctx)));
        }
        out.n_ctx /= 2;
    }
    out.budget = std::min(out.budget, out.cost.fixed_bytes + n_seq * out.cost.of(out.n_ctx));
    const uint64_t all = static_cast<uint64_t>(model_llama_padded(out.n_ctx)) * n_seq;
    out.n_tokens = tokens_for(out.cost, out.budget, static_cast<uint32_t>(std::min<uint64_t>(all, CELLS_MAX)));
    out.n_pool = static_cast<uint32_t>(std::min<uint64_t>(all, CELLS_MAX));
    if (n_streams == 1 && n_seq > 1) { /* one pool must not have more cells than the budget allows, because is_paid_for
                                        * does not check pools */
        out.n_pool =
            std::max(model_llama_padded(out.n_ctx), out.n_tokens / MODEL_LLAMA_CELLS_STEP * MODEL_LLAMA_CELLS_STEP);
        out.n_tokens = out.n_pool;
    }
    return out;
}
