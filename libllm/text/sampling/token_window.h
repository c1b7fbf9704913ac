/* token_window.h: the last tokens of a sequence and how often each of them occurs there, for penalties. The counts are
 * kept up to date. So a pick does not search all tokens of the window. Owned by a sampler. */
#ifndef LLM_TOKEN_WINDOW_H
#define LLM_TOKEN_WINDOW_H

#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <vector>

class token_window {
  public:
    explicit token_window(size_t n) : size(n) {}

    void push(int32_t token)
    {
        if (recent.size() < size) {
            recent.push_back(token);
        } else {
            const auto oldest = counts.find(recent[next]);
            if (--oldest->second == 0) {
                counts.erase(oldest);
            }
            recent[next] = token;
            next = (next + 1) % size;
        }
        counts[token]++;
    }

    const std::unordered_map<int32_t, uint32_t> &seen() const
    {
        return counts;
    }

  private:
    size_t size; /* number of tokens in the window, more than 0 */
    size_t next = 0;
    std::vector<int32_t> recent;
    std::unordered_map<int32_t, uint32_t> counts;
};

#endif
