/* unicode-split.h: splits text by the patterns of pre-tokenizers. The result is that of std::regex, but takes linear
 * time, and the depth of the stack depends only on the pattern. cmake/llama.sh adds this file to llama.cpp's src/. Used
 * by unicode.cpp. Any thread.
 *
 * std::regex recurses for each character. So 40,000 letters in a request overflowed the stack of any thread and ended
 * the process. This code compiles a pattern to a small program, in which a repeated set of characters is one
 * instruction. The program backtracks, because the first match in the order of the alternatives must win, as in
 * ECMAScript. A finite automaton would find the longest match instead. The alternatives that are still to be tried
 * (choices) are stored in a vector on the heap. Two rules keep both time and heap linear:
 *   - A repetition that has failed from a position on is not tried again from there (range_failed).
 *   - A choice whose alternative is the end of the pattern cannot fail. So all older choices are dropped, because they
 *     will never be needed (push).
 * There is also a limit on steps, STEPS_PER_CHAR for each character. If the two rules are not enough for a pattern, the
 * result is an error and not a hang.
 *
 * For a pattern that matches the empty string, std::runtime_error is thrown, and the model cannot be loaded. */
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "unicode-pattern.h"

namespace unicode_split {

constexpr uint64_t STEPS_PER_CHAR = 256;

/* ---- the program ------------------------------------------------------------------------------------------------- */

struct instruction {
    enum op_type {
        MATCH,
        SET,    /* matches one character of `set`, then continues at `next` */
        REPEAT, /* matches min to max characters of `set`, as many as possible first, then continues at `next` */
        SPLIT,  /* continues at `next`; if that fails, at `other` */
        AHEAD,  /* continues at `next` if `other` matches here (if negated: does not match) */
        END,    /* continues at `next` if this is the end of the text */
    } op;

    uint32_t next = 0, other = 0, set = 0, min = 0, max = 0;
    bool negated = false;
};

class program {
  public:
    std::vector<instruction> code; /* code[0] is MATCH, the end of the pattern and of all lookaheads */
    std::vector<char_set> sets;
    uint32_t start;
    char_set first; /* the characters with which a match can begin. search() skips all other characters */

    explicit program(const node &pattern) : code(1), start(0), first(first_of(pattern))
    {
        code[0].op = instruction::MATCH;
        if (pattern.can_be_empty()) {
            throw std::runtime_error("a pre-tokenizer pattern that matches the empty string");
        }
        start = emit(pattern, 0);
    }

  private:
    static char_ranges first_of(const node &n)
    {
        switch (n.kind) {
        case node::SET: return n.set;
        case node::REPEAT: return first_of(n.parts[0]);
        case node::CHOICE:
        case node::SEQUENCE: {
            char_ranges out;
            for (const node &part : n.parts) {
                out = ranges_united(std::move(out), first_of(part));
                if (n.kind == node::SEQUENCE && !part.can_be_empty()) {
                    break;
                }
            }
            return out;
        }
        default: return {};
        }
    }

    uint32_t add(instruction i)
    {
        code.push_back(i);
        return static_cast<uint32_t>(code.size() - 1);
    }

    uint32_t add_set(instruction::op_type op, const char_ranges &set, uint32_t next, uint32_t min, uint32_t max)
    {
        sets.emplace_back(set);
        return add({op, next, 0, static_cast<uint32_t>(sets.size() - 1), min, max, false});
    }

    /* Adds the instructions for node n, which continue at `next`. Returns the index of the first instruction. Recurses
     * as deeply as the pattern nests. */
    uint32_t emit(const node &n, uint32_t next)
    {
        switch (n.kind) {
        case node::SET: return add_set(instruction::SET, n.set, next, 1, 1);
        case node::END: return add({instruction::END, next, 0, 0, 0, 0, false});
        case node::AHEAD: {
            const uint32_t body = emit(n.parts[0], 0);
            return add({instruction::AHEAD, next, body, 0, 0, 0, n.negated});
        }
        case node::SEQUENCE:
            for (size_t i = n.parts.size(); i-- > 0;) {
                next = emit(n.parts[i], next);
            }
            return next;
        case node::CHOICE: {
            uint32_t begin = emit(n.parts.back(), next);
            for (size_t i = n.parts.size() - 1; i-- > 0;) {
                const uint32_t preferred = emit(n.parts[i], next);
                begin = add({instruction::SPLIT, preferred, begin, 0, 0, 0, false});
            }
            return begin;
        }
        case node::REPEAT: break;
        }
        return emit_repeat(n, next);
    }

    uint32_t emit_repeat(const node &n, uint32_t next)
    {
        const node &body = n.parts[0];
        if (body.kind == node::SET) {
            return add_set(instruction::REPEAT, body.set, next, n.min, n.max);
        }
        uint32_t begin = next;
        if (n.max == NO_MAX) {
            begin = add({instruction::SPLIT, 0, next, 0, 0, 0, false});
            const uint32_t again = emit(body, begin);
            code[begin].next = again;
        } else {
            for (uint32_t i = n.min; i < n.max; ++i) {
                const uint32_t once = emit(body, begin);
                begin = add({instruction::SPLIT, once, next, 0, 0, 0, false});
            }
        }
        for (uint32_t i = 0; i < n.min; ++i) {
            begin = emit(body, begin);
        }
        return begin;
    }
};

/* ---- running it -------------------------------------------------------------------------------------------------- */

/* Finds matches in one text. One thread uses a matcher. Several matchers can share a program. */
template <typename CharT> class matcher {
  public:
    explicit matcher(const program &p)
        : code(p.code), sets(p.sets), start(p.start), first(p.first), failed(p.code.size())
    {}

    /* Sets the part of the text that is searched from now on. Positions are relative to its beginning. */
    void open(const CharT *stretch, size_t n)
    {
        text = stretch;
        end = static_cast<uint32_t>(n);
        steps_left = STEPS_PER_CHAR * (n + 1);
        std::fill(failed.begin(), failed.end(), range_failed());
    }

    /* Finds the first match at or after `from`. Returns false if there is none. */
    bool search(size_t from, size_t *begin, size_t *behind)
    {
        for (uint32_t at = static_cast<uint32_t>(from); at < end; ++at) {
            count(1);
            if (first.has(value(at)) && match(start, at, behind)) {
                *begin = at;
                return true;
            }
        }
        return false;
    }

  private:
    /* What to try next if the current attempt fails. For SPLIT: continue at its `other`, at position `at`. For REPEAT:
     * end the repetition one character earlier, at position `at` - 1, but not before `low`. All positions from `high`
     * down to `at` have already been tried. */
    struct choice {
        uint32_t pc, at, low, high;
    };

    /* Positions [begin, end) at which a REPEAT without a maximum cannot end: everything after the REPEAT is known to
     * fail there. Example: `\s+$` on 1,000 blanks and a letter. From position 0, the REPEAT takes all blanks, and `$`
     * fails after 1,000, 999, ... and 1 blanks. The search then begins at position 1, and would fail in the same way:
     * half a million steps in total. But it is known that ending the REPEAT at the positions 2 to 1,000 fails, so the
     * search gives up at once. This is not possible for a repetition with a maximum: if it begins later, it can reach
     * positions that were not tried. */
    struct range_failed {
        uint32_t begin = 0, end = 0;
    };

    const std::vector<instruction> &code;
    const std::vector<char_set> &sets;
    const uint32_t start;
    const char_set &first;
    const CharT *text = nullptr;
    uint32_t end = 0;
    uint64_t steps_left = 0;
    std::vector<range_failed> failed; /* one range for each instruction */
    std::vector<choice> choices;

    uint32_t value(uint32_t at) const
    {
        return static_cast<uint32_t>(static_cast<std::make_unsigned_t<CharT>>(text[at]));
    }

    void count(uint64_t n)
    {
        if (n > steps_left) {
            throw std::runtime_error("a pre-tokenizer pattern takes too many steps");
        }
        steps_left -= n;
    }

    /* Runs the program from instruction pc at position `at` until MATCH. Returns false if there is no match. Calls
     * itself for lookaheads, as deeply as they are nested in the pattern. Such a call does not touch the choices below
     * `bottom`, which belong to its callers. */
    bool match(uint32_t pc, uint32_t at, size_t *behind)
    {
        const size_t bottom = choices.size();
        for (;;) {
            count(1);
            const instruction &i = code[pc];
            bool is_good = false;
            switch (i.op) {
            case instruction::MATCH:
                choices.resize(bottom);
                *behind = at;
                return true;
            case instruction::SET:
                is_good = at < end && sets[i.set].has(value(at));
                at += is_good;
                break;
            case instruction::END: is_good = at == end; break;
            case instruction::AHEAD: {
                size_t ignored;
                is_good = match(i.other, at, &ignored) != i.negated;
                break;
            }
            case instruction::SPLIT:
                push({pc, at, 0, 0}, i.other, bottom);
                is_good = true;
                break;
            case instruction::REPEAT: is_good = repeat(pc, &at, bottom); break;
            }
            if (is_good) {
                pc = i.next;
            } else if (!next_choice(bottom, &pc, &at)) {
                return false;
            }
        }
    }

    /* Adds a choice that leads to instruction `to`. If `to` is MATCH, the choice cannot fail, so older choices are
     * dropped. Without this rule, repetitions over a long text would store a choice for each word. */
    void push(const choice &c, uint32_t to, size_t bottom)
    {
        if (code[to].op == instruction::MATCH) {
            choices.resize(bottom);
        }
        choices.push_back(c);
    }

    /* Takes as many characters as possible. Stops where a range that is known to fail begins, because ending the
     * repetition within this range need not be tried again. */
    bool repeat(uint32_t pc, uint32_t *at, size_t bottom)
    {
        const instruction &i = code[pc];
        const char_set &set = sets[i.set];
        if (end - *at < i.min) {
            return false;
        }
        const uint32_t low = *at + i.min;
        const uint32_t limit = i.max < end - *at ? *at + i.max : end;
        uint32_t p = *at;
        while (p < low && set.has(value(p))) {
            ++p;
        }
        const range_failed &f = failed[pc];
        const bool is_known = i.max == NO_MAX && low < f.end;
        while (p >= low && p < limit && !(is_known && p >= f.begin) && set.has(value(p))) {
            ++p;
        }
        count(p - *at);
        if (p < low || (is_known && low >= f.begin)) {
            return false;
        }
        const uint32_t high = is_known && p >= f.begin ? p - 1 : p;
        *at = high;
        if (code[i.next].op != instruction::MATCH) {
            push({pc, high, low, high}, i.next, bottom);
        }
        return true;
    }

    /* Backtracks to the newest choice above `bottom` that has something left to try. Returns false if there is none. */
    bool next_choice(size_t bottom, uint32_t *pc, uint32_t *at)
    {
        while (choices.size() > bottom) {
            count(1);
            choice &c = choices.back();
            const instruction &i = code[c.pc];
            if (i.op == instruction::SPLIT) {
                *pc = i.other;
                *at = c.at;
                choices.pop_back();
                return true;
            }
            if (c.at > c.low) {
                *pc = i.next;
                *at = --c.at;
                return true;
            }
            if (i.max == NO_MAX) {
                remember(c);
            }
            choices.pop_back();
        }
        return false;
    }

    /* Adds to the range of positions that are known to fail. One range per instruction is enough, because the search
     * moves forward. A repetition that stopped right before the known range (see `repeat`) extends this range. */
    void remember(const choice &c)
    {
        range_failed &f = failed[c.pc];
        if (f.begin == c.high + 1 && f.end > f.begin) {
            f.begin = c.low;
        } else {
            f = {c.low, c.high + 1};
        }
    }
};

/* ---- splitting --------------------------------------------------------------------------------------------------- */

/* Returns the program of a pattern. Each pattern is compiled once. Any thread. */
template <typename CharT> std::shared_ptr<const program> program_of(const std::basic_string<CharT> &pattern)
{
    static std::mutex mutex;
    /* This cache never shrinks. It stays small, because patterns come only from llama.cpp and never from requests. */
    static std::map<std::basic_string<CharT>, std::shared_ptr<const program>> programs;
    const std::lock_guard<std::mutex> lock(mutex);
    auto &entry = programs[pattern];
    if (!entry) {
        std::vector<uint32_t> values;
        for (const CharT c : pattern) {
            values.push_back(static_cast<uint32_t>(static_cast<std::make_unsigned_t<CharT>>(c)));
        }
        entry = std::make_shared<const program>(parser(std::move(values)).parse());
    }
    return entry;
}

/* Returns the lengths of the matches and of the texts between them. `offsets` has the lengths of the parts of the text
 * that are searched separately. */
template <typename CharT>
std::vector<size_t> split(const std::basic_string<CharT> &text, const std::basic_string<CharT> &pattern,
                          const std::vector<size_t> &offsets)
{
    std::vector<size_t> out;
    if (text.empty()) {
        return out;
    }
    const std::shared_ptr<const program> compiled = program_of(pattern);
    out.reserve(offsets.size());
    matcher<CharT> m(*compiled);
    size_t start = 0;
    for (const size_t n : offsets) {
        m.open(text.data() + start, n);
        size_t done = 0, begin, behind;
        while (done < n && m.search(done, &begin, &behind)) {
            if (begin > done) {
                out.push_back(begin - done);
            }
            out.push_back(behind - begin);
            done = behind;
        }
        if (done < n) {
            out.push_back(n - done);
        }
        start += n;
    }
    return out;
}

/* Splits by (?=(\d{3})+(?!\d)), the only pattern in llama.cpp that matches the empty string. It matches before each
 * group of three digits, counted from the end of a run of digits. "1234567" becomes "1", "", "234", "", "567". */
inline std::vector<size_t> split_before_digit_groups(const std::vector<uint32_t> &text,
                                                     const std::vector<size_t> &offsets)
{
    std::vector<size_t> out;
    size_t start = 0;
    for (const size_t n : offsets) {
        const size_t behind = start + n;
        size_t done = start, run_end = start;
        for (size_t at = start; at < behind; ++at) {
            for (run_end = std::max(run_end, at); run_end < behind && text[run_end] >= '0' && text[run_end] <= '9';) {
                ++run_end;
            }
            if (run_end > at && (run_end - at) % 3 == 0) {
                if (at > done) {
                    out.push_back(at - done);
                }
                out.push_back(0);
                done = at;
            }
        }
        if (done < behind) {
            out.push_back(behind - done);
        }
        start = behind;
    }
    return out;
}

} // namespace unicode_split
