/* grammar_text.h: changes grammars in GBNF as texts, and joins them. They come from llama.cpp's converters as texts, so
 * this is done before they are compiled. Pure. */
#ifndef LLM_GRAMMAR_TEXT_H
#define LLM_GRAMMAR_TEXT_H

#include <string>

/* Puts `prefix` before the names of all rules, so that two grammars can be joined. */
std::string grammar_renamed(const std::string &grammar, const std::string &prefix);

/* Returns a grammar of the texts that one or the other allows. */
std::string grammar_of_either(const std::string &one, const std::string &other);

/* Returns whether a rule of the grammar has the JSON string `constant`. */
bool grammar_mentions(const std::string &grammar, const std::string &constant);

/* Replaces that string by the texts that `inner` allows; inner's rules are renamed. */
std::string grammar_with(const std::string &grammar, const std::string &constant, const std::string &inner,
                         const std::string &prefix);

/* Makes the rule of this name, if there is one, allow up to 4 blanks and nothing else. */
std::string grammar_with_blank_rule(const std::string &grammar, const std::string &name);

/* Wherever the grammar has this literal, `element` may stand before it. */
std::string grammar_with_optional(const std::string &grammar, const std::string &literal, const std::string &element);

/* Removes the repetitions (+) in the rule of this name, if there is one: its parts come once. */
std::string grammar_without_repetition(const std::string &grammar, const std::string &name);

/* Removes the marks ```json and ``` that some models put around JSON. */
std::string grammar_without_fences(std::string grammar);

/* Replaces llama.cpp's rule for calls that may repeat and may be missing, (tool-call? space)+: it repeats what may be
 * empty, which never ends. */
std::string grammar_without_empty_turns(std::string grammar);

#endif
