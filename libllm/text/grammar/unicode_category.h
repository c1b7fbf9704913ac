/* unicode_category.h: the general categories of Unicode, for \p{...} in regular expressions. Pure. */
#ifndef LLM_UNICODE_CATEGORY_H
#define LLM_UNICODE_CATEGORY_H

#include <string>

#include "text/grammar/character_set.h"

/* `name` is a category (Lu, Uppercase_Letter) or a group of categories (L, Letter). Returns false for other names, such
 * as the names of scripts. */
bool unicode_category(const std::string &name, character_set &out);

#endif
