/* unicode_category.h: the general categories of Unicode, as \p{...} of a regular expression names them. Pure. */
#ifndef LLM_UNICODE_CATEGORY_H
#define LLM_UNICODE_CATEGORY_H

#include <string>

#include "text/grammar/character_set.h"

/* `name` is of a category (Lu, Uppercase_Letter) or of a group of them (L, Letter). False: it is neither, as that of a script. */
bool unicode_category(const std::string &name, character_set &out);

#endif
