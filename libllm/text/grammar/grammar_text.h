/* grammar_text.h: edits and joins grammars as GBNF source text, because llama.cpp's converters return source text. The
 * functions are pure. */
#ifndef LLM_GRAMMAR_TEXT_H
#define LLM_GRAMMAR_TEXT_H

#include <string>

/* Adds `prefix` to the names of all rules. Two grammars with different prefixes can be joined, because no two of their
 * rules have the same name. */
std::string grammar_renamed(const std::string &grammar, const std::string &prefix);

/* Returns a grammar that allows each text that at least one of the two grammars allows. */
std::string grammar_of_either(const std::string &one, const std::string &other);

/* Returns whether a rule of the grammar contains the JSON string `constant`. */
bool grammar_mentions(const std::string &grammar, const std::string &constant);

/* Returns a grammar that allows the texts of the grammar `inner` wherever `grammar` demands the JSON string `constant`.
 * `prefix` is added to the names of the rules of `inner`. */
std::string grammar_with(const std::string &grammar, const std::string &constant, const std::string &inner,
                         const std::string &prefix);

/* If the grammar has a rule of this name, replaces the rule by one that matches 0 to 4 blanks. */
std::string grammar_with_blank_rule(const std::string &grammar, const std::string &name);

/* Makes the grammar allow the GBNF element `element`, once or not at all, before each occurrence of the literal
 * `literal`. */
std::string grammar_with_optional(const std::string &grammar, const std::string &literal, const std::string &element);

/* If the grammar has a rule of this name, removes the repetitions (+) in the rule. Each part of the rule then occurs
 * once. */
std::string grammar_without_repetition(const std::string &grammar, const std::string &name);

/* Removes from the grammar the code fences ```json and ``` that some models write around JSON. */
std::string grammar_without_fences(std::string grammar);

/* Replaces (tool-call? space)+ by (tool-call space)*. llama.cpp writes the first form for optional, repeated tool
 * calls. The first form repeats an element that can be empty. So matching it would never end. */
std::string grammar_without_empty_turns(std::string grammar);

#endif
