/* chat_splice.h: the tokens of an answer as they were generated, in the place of the answer's text. Private to the chat
 * door. Pure.
 *
 * A template is rendered with a sentinel for what a spliced message says. In the rendered text the splice stands for
 * the sentinel and for the template's own text in front of it that opens the answer, since the tokens begin with the
 * generation prompt as it was. What opens the answer is found by comparing with the generation prompt; templates may open
 * past answers in another way than the next one (an empty block of reasoning in one and not in the other). A splice
 * whose place is not found beyond doubt is refused: that message is then rendered like any other. */
#ifndef LLM_CHAT_SPLICE_H
#define LLM_CHAT_SPLICE_H

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "text/chat_control.h"

struct chat_splice {
    size_t message;              /* index in the request */
    std::vector<int32_t> tokens; /* the generation prompt, then what was generated */
    std::string rest; /* text of the answer that the tokens do not cover; the template sees it after the sentinel */
};

/* A rendered chat with splices. */
struct spliced_text {
    struct range {
        size_t begin, end; /* bytes of the text that the splice stands for */
    };
    chat_text rendered;
    std::vector<chat_splice> splices;
    std::vector<range> ranges; /* one for each splice, ascending */
    const model *m;
    const control_words *words;
    bool adds_bos;

    /* Finds the ranges. `opening`: the text of the generation prompt, if it can be told. Returns the messages whose
     * splices are refused; then the text must be rendered again without them. */
    std::vector<size_t> place(const control_markers &markers, const std::optional<std::string> &opening);

    /* Tokens of the first n bytes, which must not end inside a splice. `refused` (may be NULL) gets the messages behind
     * whose splices the text does not keep its spelling when it is tokenized alone. Throws as chat_tokenize does. */
    chat_tokens tokenize(size_t n_bytes, std::vector<size_t> *refused = nullptr) const;

    bool is_inside_splice(size_t byte) const;

    std::string shown() const; /* with the text of the splices' tokens */
};

#endif
