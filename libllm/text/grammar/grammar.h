/* grammar.h: a compiled grammar in GBNF, llama.cpp's language. Immutable once it is read; any thread. Grammars come
 * from clients: whatever could grow without bound, or recurse for ever, is refused while a grammar is read. llama.cpp's
 * own reader and matcher abort, recurse and grow instead, which would end a process that serves others. */
#ifndef LLM_GRAMMAR_H
#define LLM_GRAMMAR_H

#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

struct model;

/* The grammar is faulty or too large; a sentence for its author. */
struct grammar_fault : std::runtime_error {
    using std::runtime_error::runtime_error;
};

/* The grammar is well formed, but cannot be enforced. */
struct grammar_beyond : grammar_fault {
    using grammar_fault::grammar_fault;
};

struct grammar_range {
    uint32_t low, high;
};

struct grammar_element {
    enum kind : uint8_t {
        END,       /* of a rule */
        ALTERNATE, /* end of one way to match a rule, before the next */
        RULE,      /* value: its number */
        CHARACTER, /* one of ranges [value, value + n) */
        TOKEN,     /* value: its id */
    };
    kind is;
    bool is_negated; /* any character or token but these */
    uint32_t value, n;

    bool ends_sequence() const
    {
        return is == END || is == ALTERNATE;
    }
};

struct grammar {
    std::vector<grammar_element> elements; /* rule after rule */
    std::vector<grammar_range> ranges;
    std::vector<uint32_t> rules; /* where each begins in `elements` */
    uint32_t root;

    /* Compiles a grammar. <Names of tokens> are looked up in the vocabulary of `m`; with NULL they are not, and the
     * result only shows that the grammar can be read. Throws grammar_fault, std::bad_alloc. */
    static grammar read(const std::string &text, const model *m);

    bool matches(const grammar_element &e, uint32_t character) const;
};

#endif
