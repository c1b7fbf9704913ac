/* grammar_guess.cpp: guesses the text that comes next where the grammar leaves only one way to go on: the names of an
 * object's members, its quotes and colons, the tags of a tool call. Looking ahead does not advance the walk. A place that
 * several characters can follow costs one look into a table, so a guess costs nothing where it cannot help.
 *
 * JSON allows blanks between its parts. Without a guess of these blanks, a guess would end at each of them. */
#include "text/grammar/grammar_walk.h"
#include "text/grammar/regex_grammar.h"

/* Returns the only character other than a blank that can follow the place `from`, and whether blanks can come before
 * it. If nothing but one blank can follow, returns this blank. Returns NONE if the text can end, or if several
 * characters, a negated set or a token can follow. */
grammar_walk::way_on grammar_walk::find_way_on(place from)
{
    uint32_t only = NONE, blank = NONE, n_blanks = 0;
    for (const uint32_t id : places[from].stacks) {
        spend(1);
        const grammar_element *e = id != NONE ? &rules.elements[stacks[id].element] : nullptr;
        if (e == nullptr || e->is != grammar_element::CHARACTER || e->is_negated) {
            return {};
        }
        for (uint32_t i = 0; i < e->n; i++) {
            const grammar_range &r = rules.ranges[e->value + i];
            for (uint32_t c = r.low; c <= r.high; c++) {
                if (blank_style::is_blank(c)) {
                    n_blanks += c != blank;
                    blank = c;
                } else if (only != NONE && c != only) {
                    return {};
                } else {
                    only = c;
                }
            }
        }
    }
    if (only == NONE && n_blanks == 1) {
        return {blank, false};
    }
    return {only, only != NONE && n_blanks > 0};
}

grammar_walk::way_on grammar_walk::way_on_from(place from)
{
    if (places[from].only.character == UNKNOWN) {
        const way_on found = find_way_on(from);
        places[from].only = found;
    }
    return places[from].only;
}

void grammar_walk::add_blanks(const char *text, size_t n_bytes)
{
    point p = now;
    for (size_t i = 0; i < n_bytes && p.at != NONE; i++) {
        const way_on next = p.begun.n_missing == 0 ? way_on_from(p.at) : way_on();
        style->add(static_cast<uint8_t>(text[i]), next.has_blanks);
        if (!take_byte(p, static_cast<uint8_t>(text[i]))) {
            return;
        }
    }
}

/* Learns the blanks in the text of an accepted token. `now` is still the position before the token. If this takes too
 * long, the answer goes on without guesses: they only save time. */
void grammar_walk::learn_blanks(const char *text, size_t n_bytes)
{
    if (!style) {
        return;
    }
    const bool was_quick = is_quick;
    be_quick(true);
    try {
        add_blanks(text, n_bytes);
    } catch (const std::exception &) {
        style.reset();
    }
    be_quick(was_quick);
}

/* Adds the blank that is guessed to come next. Returns false if none is, or if the grammar does not allow it. */
bool grammar_walk::add_blank(std::string &out, place &at, blank_style::position &written, way_on next)
{
    const char blank = next.has_blanks ? style->next_blank(written, next.character) : '\0';
    const place to = blank != '\0' ? step(at, static_cast<uint8_t>(blank)) : NONE;
    if (to == NONE) {
        return false;
    }
    out += blank;
    written.advance(static_cast<uint8_t>(blank), true);
    at = to;
    return true;
}

std::string grammar_walk::guess(size_t n_bytes_max)
{
    std::string out;
    begin_call();
    if (!style || now.at == NONE || now.begun.n_missing > 0 || way_on_from(now.at).character == NONE) {
        return out;
    }
    place at = now.at;
    blank_style::position written = style->at_end();
    while (out.size() < n_bytes_max) {
        const way_on next = way_on_from(at);
        if (next.character == NONE) {
            break;
        }
        if (!add_blank(out, at, written, next)) {
            out += utf8_of(next.character);
            written.advance(next.character, false);
            at = step(at, next.character);
        }
    }
    return out;
}
