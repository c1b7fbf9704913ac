/* chat_numbers.h: replaces numbers that templates would round. llama.cpp's template engine prints only six digits of a
 * number. For example, a model called f(lat=40.712776, at=1700000000.123). The next prompt showed this call as
 * f(lat=40.7128, at=1.7e+09). The template therefore gets an integer instead of such a number, and in the rendered text
 * the integer is replaced by the number. Used only in this folder. One object per request. */
#ifndef LLM_CHAT_NUMBERS_H
#define LLM_CHAT_NUMBERS_H

#include <common/json.h>

#include <string>
#include <vector>

#include "text/chat/chat_control.h"

class chat_numbers {
  public:
    chat_numbers() = default;

    /* `request` is the JSON from which all numbers come. */
    explicit chat_numbers(const std::string &request);

    /* Returns an integer that is passed to the template instead of the number. If templates print the number unchanged,
     * returns the number itself. */
    common_json stand_in(const common_json &number);

    /* In rendered text, replaces each integer from `stand_in` by the original number. */
    void put(chat_text *rendered) const;

  private:
    std::string prefix;             /* the leading digits of all replacement integers. These digits occur nowhere in the
                                     * request. "" if no number is replaced */
    std::vector<std::string> texts; /* texts of the replaced numbers */
};

#endif
