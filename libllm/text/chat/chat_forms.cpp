/* chat_forms.cpp: the cache of forms (chat_form.h). If the cache is full, the least recently used form is dropped
 * first. */
#include <algorithm>

#include "text/chat/chat_form.h"

namespace {

constexpr size_t FORMS_MAX = 32, FORMS_BYTES_MAX = 16 << 20;

} // namespace

std::string chat_wish::key() const
{
    common_json out = common_json::object();
    out["tools"] = tools;
    out["choice"] = static_cast<int>(choice);
    out["names"] = names;
    out["parallel"] = parallel;
    out["grammar"] = grammar;
    out["arguments"] = common_json::array();
    for (const chat_argument &one : arguments) {
        for (const std::string &text : {one.tool, one.name, one.grammar}) {
            out["arguments"].push_back(text);
        }
    }
    out["apart"] = is_reasoning_apart;
    out["continues_reasoning"] = continues_reasoning;
    out["continues_content"] = continues_content;
    out["kwargs"] = kwargs;
    return out.dump_safe();
}

std::shared_ptr<const chat_form> chat_forms::find(const std::string &key)
{
    const std::lock_guard<std::mutex> hold(lock);
    const auto at = std::find_if(entries.begin(), entries.end(), [&](const entry &e) { return e.key == key; });
    if (at == entries.end()) {
        return nullptr;
    }
    entries.splice(entries.begin(), entries, at);
    return at->form;
}

void chat_forms::keep(const std::string &key, std::shared_ptr<const chat_form> form)
{
    const std::lock_guard<std::mutex> hold(lock);
    const size_t size = key.size() + form->parser.size() + form->grammar.size();
    entries.push_front({key, std::move(form), size});
    n_bytes += size;
    while (entries.size() > FORMS_MAX || (n_bytes > FORMS_BYTES_MAX && entries.size() > 1)) {
        n_bytes -= entries.back().n_bytes;
        entries.pop_back();
    }
}
