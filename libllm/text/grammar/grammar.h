/* grammar.h: a compiled grammar. Grammars are written in GBNF, the language of llama.cpp. A grammar is immutable after
 * `read`, so any thread can use it. Grammars come from clients. So `read` refuses every grammar that could take
 * unlimited memory or recurse forever. With such a grammar, llama.cpp's own parser or matcher would end the process and
 * all its other requests. */
#ifndef LLM_GRAMMAR_H
#define LLM_GRAMMAR_H

#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

struct model;

/* Thrown if the grammar is malformed or too large. The message is a sentence for the grammar's author. */
struct grammar_fault : std::runtime_error {
    using std::runtime_error::runtime_error;
};

/* Thrown if the grammar is well formed, but cannot be enforced. */
struct grammar_beyond : grammar_fault {
    using grammar_fault::grammar_fault;
};

struct grammar_range {
    uint32_t low, high;
};

struct grammar_element {
    enum kind : uint8_t {
        END,       /* end of a rule */
        ALTERNATE, /* end of one alternative, after which another alternative follows */
        RULE,      /* matches a rule; `value` is the number of the rule */
        CHARACTER, /* matches the characters in ranges[value] to ranges[value + n - 1] */
        TOKEN,     /* matches a token; `value` is the token id */
    };
    kind is;
    bool is_negated; /* if true, matches all other characters or tokens */
    uint32_t value, n;

    bool ends_sequence() const
    {
        return is == END || is == ALTERNATE;
    }
};

struct grammar {
    std::vector<grammar_element> elements; /* elements of all rules, rule after rule */
    std::vector<grammar_range> ranges;
    std::vector<uint32_t> rules; /* position of each rule in `elements` */
    uint32_t root;

    /* Compiles a grammar. Token names (<name>) are looked up in the vocabulary of `m`. If m is NULL, names are not
     * looked up, and the result only shows that the grammar is valid. Throws grammar_fault, std::bad_alloc. */
    static grammar read(const std::string &text, const model *m);

    bool matches(const grammar_element &e, uint32_t character) const;
};

#endif
