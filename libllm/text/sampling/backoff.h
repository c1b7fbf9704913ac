/* backoff.h: decides when to repeat a kind of attempt that often takes too long. After a failed attempt, no attempt is
 * made for the next 8 tokens. Each further failure doubles this number, until an attempt succeeds. Otherwise, with a
 * grammar that is always slow, every token would cost the time limit of a failed attempt. Owned by a sampler. */
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
    uint32_t length = 0, n_left = 0; /* tokens without attempts: their number after the latest failure, and how many of
                                      * them are left */
};

#endif
