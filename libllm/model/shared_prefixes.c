#include "model/shared_prefixes.h"

#include <stdlib.h>

bool shared_prefixes_open(shared_prefixes *p, uint32_t n_seq)
{
    *p = (shared_prefixes){.n_seq = n_seq, .n_tokens = calloc((size_t)n_seq * n_seq, sizeof *p->n_tokens)};
    return p->n_tokens != NULL || n_seq == 0;
}

void shared_prefixes_close(shared_prefixes *p)
{
    free(p->n_tokens);
    *p = (shared_prefixes){.n_seq = 0};
}

static void set(shared_prefixes *p, uint32_t a, uint32_t b, uint32_t n_tokens)
{
    p->n_tokens[a * p->n_seq + b] = n_tokens;
    p->n_tokens[b * p->n_seq + a] = n_tokens;
}

void shared_prefixes_copy(shared_prefixes *p, uint16_t src, uint16_t dst, uint32_t n_tokens)
{
    for (uint32_t i = 0; i < p->n_seq; i++) {
        const uint32_t n = i == src ? n_tokens : p->n_tokens[src * p->n_seq + i];
        set(p, dst, i, i == dst ? 0 : n);
    }
}

void shared_prefixes_truncate(shared_prefixes *p, uint16_t seq, uint32_t k)
{
    for (uint32_t i = 0; i < p->n_seq; i++) {
        const uint32_t n = p->n_tokens[seq * p->n_seq + i];
        set(p, seq, i, n < k ? n : k);
    }
}

uint32_t shared_prefixes_counted_before(const shared_prefixes *p, uint16_t seq)
{
    uint32_t most = 0;
    for (uint32_t i = 0; i < seq && i < p->n_seq; i++) {
        const uint32_t n = p->n_tokens[seq * p->n_seq + i];
        most = n > most ? n : most;
    }
    return most;
}
