/* grammar_text.h: edits and joins grammars in GBNF as texts, because llama.cpp's converters return texts. Pure. */
#ifndef LLM_GRAMMAR_TEXT_H
#define LLM_GRAMMAR_TEXT_H

#include <string>

/* Adds `prefix` to the names of all rules, so that two grammars can be joined. */
std::string grammar_renamed(const std::string &grammar, const std::string &prefix);

/* Returns a grammar of the texts that either grammar allows. */
std::string grammar_of_either(const std::string &one, const std::string &other);

/* Returns whether a rule of the grammar contains the JSON string `constant`. */
bool grammar_mentions(const std::string &grammar, const std::string &constant);

/* Replaces the JSON string `constant` by the texts that `inner` allows. The names of `inner`'s rules get the prefix
 * `prefix`. */
std::string grammar_with(const std::string &grammar, const std::string &constant, const std::string &inner,
                         const std::string &prefix);

/* Makes the rule of this name, if it exists, allow up to 4 blanks and nothing else. */
std::string grammar_with_blank_rule(const std::string &grammar, const std::string &name);

/* Allows `element` before each occurrence of this literal in the grammar. */
std::string grammar_with_optional(const std::string &grammar, const std::string &literal, const std::string &element);

/* Removes the repetitions (+) from the rule of this name, if it exists, so that each part occurs once. */
std::string grammar_without_repetition(const std::string &grammar, const std::string &name);

/* Removes the code fences ```json and ``` that some models write around JSON. */
std::string grammar_without_fences(std::string grammar);

/* Replaces llama.cpp's rule for optional calls that can repeat, (tool-call? space)+. This rule repeats an element that
 * can be empty, which never ends. */
std::string grammar_without_empty_turns(std::string grammar);

#endif
