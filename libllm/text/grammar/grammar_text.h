/* grammar_text.h: grammars in GBNF, put together. Pure. */
#ifndef LLM_GRAMMAR_TEXT_H
#define LLM_GRAMMAR_TEXT_H

#include <string>

/* All its rules under other names: `prefix` and the old one. */
std::string grammar_renamed(const std::string &grammar, const std::string &prefix);

/* What one or the other allows. */
std::string grammar_of_either(const std::string &one, const std::string &other);

/* The grammar allows the JSON string `constant`. */
bool grammar_mentions(const std::string &grammar, const std::string &constant);

/* What `inner` allows takes the place of that string; its rules are renamed. */
std::string grammar_with(const std::string &grammar, const std::string &constant, const std::string &inner,
                         const std::string &prefix);

/* The rule of this name, if there is one, allows a few blanks and nothing else. */
std::string grammar_with_blank_rule(const std::string &grammar, const std::string &name);

/* What repeats in the rule of this name, if there is one, comes once. */
std::string grammar_without_repetition(const std::string &grammar, const std::string &name);

/* Without the marks that some models put around JSON in Markdown. */
std::string grammar_without_fences(std::string grammar);

/* llama.cpp writes calls that may repeat and may be missing as a repetition of what may be empty, which never ends. */
std::string grammar_without_empty_turns(std::string grammar);

#endif
