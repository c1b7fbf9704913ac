/* backoff.h: decides when to repeat an attempt that usually takes too long. After a failure, none is made for the next 8
 * tokens, and for twice as many each time until an attempt succeeds. Otherwise a grammar that is always slow would cost
 * the limit of an attempt for each token. Owned by a sampler. */
#ifndef LLM_BACKOFF_H
#define LLM_BACKOFF_H

#include <algorithm>
#include <cstdint>

class backoff {
  public:
    void learn(bool has_succeeded)
    {
        length = has_succeeded ? 0 : std::clamp(2 * length, uint32_t{8}, uint32_t{256});
        n_left = length;
    }
    void count_token()
    {
        n_left -= n_left > 0;
    }
    bool is_waiting() const
    {
        return n_left > 0;
    }

  private:
    uint32_t length = 0, n_left = 0; /* tokens without attempts: after the last failure, and how many are left */
};

#endif
