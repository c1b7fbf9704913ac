#include "text/sampling/end_tokens.h"

#include <cstring>
#include <mutex>

#include "model/model.h"

std::vector<int32_t> end_tokens(const model *m)
{
    static std::mutex mutex;
    static const model *of = nullptr;
    static uint8_t identity[sizeof m->info.identity];
    static std::vector<int32_t> *tokens = new std::vector<int32_t>;

    const std::lock_guard<std::mutex> hold(mutex);
    if (of != m || memcmp(identity, m->info.identity, sizeof identity) != 0) {
        of = nullptr; /* if the next lines run out of memory, no list is kept */
        tokens->clear();
        for (uint32_t t = 0; t < m->info.n_vocab; t++) {
            if (m->ops->is_end(m, static_cast<int32_t>(t))) {
                tokens->push_back(static_cast<int32_t>(t));
            }
        }
        of = m;
        memcpy(identity, m->info.identity, sizeof identity);
    }
    return *tokens;
}
