#include "text/schema_refs.h"

#include <algorithm>
#include <map>

namespace {

const std::string ROOT_REF = "#";

/* What the converter makes of a name: it takes those for one that are the same so. */
std::string converted(const std::string &name)
{
    std::string out;
    for (const char c : name) {
        const bool is_kept = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-';
        if (is_kept || out.empty() || out.back() != '\0') {
            out += is_kept ? c : '\0';
        }
    }
    std::replace(out.begin(), out.end(), '\0', '-');
    return out;
}

/* As a JSON pointer has it (RFC 6901). */
std::string escaped(const std::string &name)
{
    std::string out;
    for (const char c : name) {
        out += c == '~' ? "~0" : c == '/' ? "~1" : std::string(1, c);
    }
    return out;
}

/* Old references to new ones. */
using renamed_refs = std::map<std::string, std::string>;

void rename_refs(schema_json &value, const renamed_refs &renamed)
{
    if (value.is_object()) {
        const auto ref = value.find("$ref");
        const auto found =
            ref != value.end() && ref->is_string() ? renamed.find(ref->get<std::string>()) : renamed.end();
        if (found != renamed.end()) {
            *ref = found->second;
        }
    }
    for (schema_json &item : value) {
        if (item.is_structured()) {
            rename_refs(item, renamed);
        }
    }
}

bool has_ref(const schema_json &value, const std::string &to)
{
    const auto ref = value.is_object() ? value.find("$ref") : value.end();
    if (value.is_object() && ref != value.end() && *ref == to) {
        return true;
    }
    for (const schema_json &item : value) {
        if (item.is_structured() && has_ref(item, to)) {
            return true;
        }
    }
    return false;
}

class names {
  public:
    /* One that no definition has. */
    std::string next(const schema_json &root)
    {
        for (;;) {
            const std::string name = "llmd-" + std::to_string(n++);
            if (!(root.contains(SCHEMA_DEFINED[0]) && root[SCHEMA_DEFINED[0]].contains(name)) &&
                !(root.contains(SCHEMA_DEFINED[1]) && root[SCHEMA_DEFINED[1]].contains(name))) {
                return name;
            }
        }
    }

  private:
    size_t n = 0;
};

/* Each name is another one to the converter, and needs no escapes. */
void tell_apart(schema_json &root, names &fresh)
{
    renamed_refs renamed;
    for (const char *defined : SCHEMA_DEFINED) {
        if (!root.contains(defined) || !root[defined].is_object()) {
            continue;
        }
        const std::string head = std::string("#/") + defined + "/";
        std::map<std::string, size_t> n_named;
        for (auto it = root[defined].begin(); it != root[defined].end(); ++it) {
            n_named[converted(it.key())]++;
        }
        schema_json out = schema_json::object();
        for (auto it = root[defined].begin(); it != root[defined].end(); ++it) {
            const bool is_known =
                n_named[converted(it.key())] == 1 && it.key().find_first_of("/~") == std::string::npos;
            const std::string name = is_known ? it.key() : fresh.next(root);
            if (!is_known) {
                renamed[head + it.key()] = renamed[head + escaped(it.key())] = head + name;
            }
            out[name] = std::move(it.value());
        }
        root[defined] = std::move(out);
    }
    rename_refs(root, renamed);
}

/* What is within itself is a definition, too. */
void define_root(schema_json &root, names &fresh)
{
    const std::string name = fresh.next(root);
    rename_refs(root, {{ROOT_REF, "#/$defs/" + name}});
    schema_json whole = root;
    for (const char *defined : SCHEMA_DEFINED) {
        whole.erase(defined);
    }
    if (!root.contains("$defs") || !root["$defs"].is_object()) {
        root["$defs"] = schema_json::object();
    }
    root["$defs"][name] = std::move(whole);
}

} // namespace

bool schema_names_only(const schema_json &value)
{
    if (value.is_object()) {
        const auto ref = value.find("$ref");
        if (ref != value.end() && ref->is_string()) {
            const std::string to = ref->get<std::string>();
            bool is_name = to == ROOT_REF;
            for (const char *defined : SCHEMA_DEFINED) {
                const std::string head = std::string("#/") + defined + "/";
                is_name = is_name ||
                          (to.compare(0, head.size(), head) == 0 && to.find('/', head.size()) == std::string::npos);
            }
            if (!is_name) {
                return false;
            }
        }
    }
    for (const schema_json &item : value) {
        if (item.is_structured() && !schema_names_only(item)) {
            return false;
        }
    }
    return true;
}

void schema_name_definitions(schema_json &root)
{
    names fresh;
    tell_apart(root, fresh);
    if (has_ref(root, ROOT_REF)) {
        define_root(root, fresh);
    }
}

const schema_json *schema_defined_as(const schema_json &root, const std::string &ref)
{
    for (const char *defined : SCHEMA_DEFINED) {
        const std::string head = std::string("#/") + defined + "/";
        if (ref.compare(0, head.size(), head) == 0 && root.contains(defined) && root[defined].is_object()) {
            const auto found = root[defined].find(ref.substr(head.size()));
            return found != root[defined].end() ? &*found : nullptr;
        }
    }
    return nullptr;
}
