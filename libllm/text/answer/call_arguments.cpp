#include "text/answer/call_arguments.h"

namespace {

constexpr char REPLACEMENT[] = "\xef\xbf\xbd"; /* U+FFFD */

bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* Returns the value of a hexadecimal digit, or -1. */
int digit_of(char c)
{
    return is_digit(c) ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

size_t skip_digits(const std::string &text, size_t at)
{
    while (at < text.size() && is_digit(text[at])) {
        at++;
    }
    return at;
}

bool is_number(const std::string &text)
{
    const size_t begin = !text.empty() && text[0] == '-' ? 1 : 0;
    size_t at = skip_digits(text, begin);
    if (at == begin || (at > begin + 1 && text[begin] == '0')) {
        return false;
    }
    if (at < text.size() && text[at] == '.') {
        const size_t end = skip_digits(text, at + 1);
        if (end == at + 1) {
            return false;
        }
        at = end;
    }
    if (at < text.size() && (text[at] == 'e' || text[at] == 'E')) {
        at += at + 1 < text.size() && (text[at + 1] == '+' || text[at + 1] == '-') ? 2 : 1;
        const size_t end = skip_digits(text, at);
        if (end == at) {
            return false;
        }
        at = end;
    }
    return at == text.size();
}

bool is_scalar(const std::string &text)
{
    return text == "true" || text == "false" || text == "null" || is_number(text);
}

/* Copies the JSON object to `out`, piece by piece (brackets, commas, strings, numbers, ...). The first `n_sure` bytes
 * of `out` are certain: whatever is generated next cannot change them. Only these bytes are returned. For example, the
 * text {"a": "x", "b": tru gives the result {"a": "x". A member's name becomes certain when its value begins. A comma
 * becomes certain together with the piece after it. In {"a": "x",} the comma is dropped. */
class object_scanner {
  public:
    explicit object_scanner(const std::string &written) : text(written) {}

    call_arguments run()
    {
        while (at < text.size() && !is_whole) {
            if (is_blank(text[at])) {
                out += text[at++];
            } else if (!step(text[at])) {
                break;
            }
        }
        out.resize(n_sure);
        return {out, is_whole};
    }

  private:
    enum class place { BEGIN, FIRST_NAME, NAME, COLON, FIRST_VALUE, VALUE, BEHIND_VALUE };

    /* Copies the next piece of the JSON. The piece begins with `c`. Returns false if the piece is incomplete or not
     * JSON. */
    bool step(char c)
    {
        switch (now) {
        case place::BEGIN: return c == '{' && open(c);
        case place::FIRST_NAME:
        case place::NAME: return c == '}' ? close(c) : c == '"' && string(true);
        case place::COLON: return c == ':' && put(c, place::VALUE);
        case place::FIRST_VALUE:
        case place::VALUE: return c == ']' && closers.back() == c ? close(c) : value(c);
        default: return c == ',' ? put(c, closers.back() == '}' ? place::NAME : place::VALUE) : close(c);
        }
    }

    bool put(char c, place next)
    {
        out += c;
        at++;
        now = next;
        return true;
    }

    bool open(char c)
    {
        closers += c == '{' ? '}' : ']';
        put(c, c == '{' ? place::FIRST_NAME : place::FIRST_VALUE);
        n_sure = out.size();
        return true;
    }

    bool close(char c)
    {
        if (closers.back() != c) {
            return false;
        }
        if (now == place::NAME || now == place::VALUE) { /* drops the comma before the bracket */
            out.resize(n_sure);
        }
        closers.pop_back();
        put(c, place::BEHIND_VALUE);
        n_sure = out.size();
        is_whole = closers.empty();
        return true;
    }

    bool value(char c)
    {
        return c == '{' || c == '[' ? open(c) : c == '"' ? string(false) : scalar();
    }

    /* Copies a number or a word (true, false, null). Returns false if the text ends with the number or word, because
     * more characters of it could follow. */
    bool scalar()
    {
        size_t end = at;
        while (end < text.size() && !is_blank(text[end]) && text[end] != ',' && text[end] != ']' && text[end] != '}') {
            end++;
        }
        const std::string found = text.substr(at, end - at);
        if (end == text.size() || !is_scalar(found)) {
            return false;
        }
        out += found;
        at = end;
        n_sure = out.size();
        now = place::BEHIND_VALUE;
        return true;
    }

    /* Copies a string. Each character of the string becomes certain when it is copied. Exception: a member's name
     * becomes certain only when the member's value begins. */
    bool string(bool is_name)
    {
        put('"', now);
        while (at < text.size()) {
            n_sure = is_name ? n_sure : out.size();
            const char c = text[at];
            if (c == '"') {
                put(c, is_name ? place::COLON : place::BEHIND_VALUE);
                n_sure = is_name ? n_sure : out.size();
                return true;
            }
            if (c == '\\') {
                if (!escape()) {
                    return false;
                }
            } else {
                character(static_cast<unsigned char>(c));
                at++;
            }
        }
        n_sure = is_name ? n_sure : out.size();
        return false;
    }

    /* Writes a character below 256 as an escape. */
    void code(unsigned char c)
    {
        static const char digits[] = "0123456789abcdef";
        out += "\\u00";
        out += digits[c >> 4];
        out += digits[c & 15];
    }

    /* Copies a character, and escapes it if JSON requires an escape. */
    void character(unsigned char c)
    {
        if (c >= ' ') {
            out += static_cast<char>(c);
        } else if (c == '\n' || c == '\r' || c == '\t') {
            out += c == '\n' ? "\\n" : c == '\r' ? "\\r" : "\\t";
        } else {
            code(c);
        }
    }

    /* Returns the value of n hexadecimal digits at `from`, or -1. */
    int hexadecimal(size_t from, size_t n) const
    {
        int found = 0;
        for (size_t i = from; i < from + n; i++) {
            const int digit = digit_of(text[i]);
            if (digit < 0) {
                return -1;
            }
            found = found * 16 + digit;
        }
        return found;
    }

    /* Copies an escape. An escape of another language, such as \x41 or \', is replaced by the character that it means.
     * Returns false if the escape is incomplete. */
    bool escape()
    {
        if (at + 1 == text.size()) {
            return false;
        }
        const char c = text[at + 1];
        if (c == 'u') {
            return unicode_escape();
        }
        if (c == 'x') {
            if (at + 4 > text.size()) {
                return false;
            }
            const int found = hexadecimal(at + 2, 2);
            if (found >= 0) {
                code(static_cast<unsigned char>(found));
                at += 4;
                return true;
            }
        }
        if (c == '\'') {
            out += c;
        } else if (c == '"' || c == '\\' || c == '/' || c == 'b' || c == 'f' || c == 'n' || c == 'r' || c == 't') {
            out.append(text, at, 2);
        } else { /* an unknown escape; the backslash is copied as a character */
            out += "\\\\";
            at++;
            return true;
        }
        at += 2;
        return true;
    }

    /* Copies an escape \uXXXX. A half of a surrogate pair without the other half becomes U+FFFD, because strict
     * decoders would refuse the whole tool call. The first half of a pair is copied only after six more bytes. These
     * bytes show whether the second half follows. */
    bool unicode_escape()
    {
        constexpr size_t LENGTH = 6;
        if (at + LENGTH > text.size()) {
            return false;
        }
        const int first = hexadecimal(at + 2, 4);
        if (first < 0) {
            out += "\\\\";
            at++;
            return true;
        }
        if (first < 0xd800 || first > 0xdfff) {
            out.append(text, at, LENGTH);
            at += LENGTH;
            return true;
        }
        const std::string next = text.substr(at + LENGTH, 2);
        const bool may_pair = first < 0xdc00 && std::string("\\u").compare(0, next.size(), next) == 0;
        if (may_pair && at + 2 * LENGTH > text.size()) {
            return false;
        }
        const int second = may_pair ? hexadecimal(at + LENGTH + 2, 4) : -1;
        if (second >= 0xdc00 && second <= 0xdfff) {
            out.append(text, at, 2 * LENGTH);
            at += 2 * LENGTH;
        } else {
            out += REPLACEMENT;
            at += LENGTH;
        }
        return true;
    }

    const std::string &text;
    size_t at = 0;
    std::string out;
    size_t n_sure = 0; /* number of bytes of `out` that whatever is generated next cannot change */
    std::string closers;
    place now = place::BEGIN;
    bool is_whole = false;
};

} // namespace

call_arguments call_arguments_of(const std::string &written)
{
    return object_scanner(written).run();
}
