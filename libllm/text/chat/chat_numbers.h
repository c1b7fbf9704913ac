/* chat_numbers.h: numbers that templates would round. llama.cpp's templates print six digits of a number, so that a model
 * that once called f(lat=40.712776, at=1700000000.123) was shown f(lat=40.7128, at=1.7e+09). Such a number is given to
 * the template as an integer that stands for it, and put in place of the integer in the rendered text. Private to the chat
 * folder. One request owns it. */
#ifndef LLM_CHAT_NUMBERS_H
#define LLM_CHAT_NUMBERS_H

#include <common/json.h>

#include <string>
#include <vector>

#include "text/chat/chat_control.h"

class chat_numbers {
  public:
    chat_numbers() = default;

    /* `request` is the JSON that all numbers come from. */
    explicit chat_numbers(const std::string &request);

    /* Returns an integer that stands for the number; the number itself, if templates print it as it is. */
    common_json stand_in(const common_json &number);

    /* Replaces the integers in rendered text. */
    void put(chat_text *rendered) const;

  private:
    std::string prefix;             /* digits that the request does not contain; "": no number is replaced */
    std::vector<std::string> texts; /* of the numbers */
};

#endif
