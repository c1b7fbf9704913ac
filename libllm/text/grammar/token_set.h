/* token_set.h: a set of tokens with one bit per token of the vocabulary. Only one thread at a time can use a set. */
#ifndef LLM_TOKEN_SET_H
#define LLM_TOKEN_SET_H

#include <cstdint>
#include <vector>

class token_set {
  public:
    static constexpr uint32_t PER_WORD = 64;

    void assign(uint32_t n_tokens, bool has_all)
    {
        words.assign((n_tokens + PER_WORD - 1) / PER_WORD, has_all ? ~UINT64_C(0) : 0);
    }
    void set(int32_t token, bool is_in)
    {
        uint64_t &word = words[static_cast<uint32_t>(token) / PER_WORD];
        const uint64_t bit = UINT64_C(1) << static_cast<uint32_t>(token) % PER_WORD;
        word = is_in ? word | bit : word & ~bit;
    }
    bool has(int32_t token) const
    {
        return (words[static_cast<uint32_t>(token) / PER_WORD] >> static_cast<uint32_t>(token) % PER_WORD & 1) != 0;
    }
    /* Returns the bits of PER_WORD tokens, from token `number` * PER_WORD (in the lowest bit) on. Bits beyond the
     * vocabulary are undefined. */
    uint64_t word(uint32_t number) const
    {
        return words[number];
    }

  private:
    std::vector<uint64_t> words;
};

#endif
