/* unicode_category.h: the general categories of Unicode, for \p{...} in regular expressions. The function is pure. */
#ifndef LLM_UNICODE_CATEGORY_H
#define LLM_UNICODE_CATEGORY_H

#include <string>

#include "text/grammar/character_set.h"

/* Stores in `out` the characters of a category, such as Lu or Uppercase_Letter. The name can also be that of a group of
 * categories, such as L or Letter. Returns false for other names, such as the names of scripts. */
bool unicode_category(const std::string &name, character_set &out);

#endif
