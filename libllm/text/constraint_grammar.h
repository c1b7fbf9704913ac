/* constraint_grammar.h: from what a client asks for to a grammar in GBNF. Pure. */
#ifndef LLM_CONSTRAINT_GRAMMAR_H
#define LLM_CONSTRAINT_GRAMMAR_H

#include <string>

/* Throws std::invalid_argument with a reason for the client. */
std::string constraint_grammar(const std::string &kind, const std::string &text);

#endif
