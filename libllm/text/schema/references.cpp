#include "text/schema/references.h"

#include <algorithm>
#include <cstdlib>

namespace {

const char *const VALUES[] = {"const", "enum", "default", "examples"};
const char *const OLD_DRAFTS[] = {"/draft-03/", "/draft-04/", "/draft-06/", "/draft-07/"};

const std::string *text_of(const schema_json &value, const char *name)
{
    const auto found = value.is_object() ? value.find(name) : value.end();
    return value.is_object() && found != value.end() && found->is_string() ? found->get_ptr<const std::string *>()
                                                                           : nullptr;
}

/* Decodes one part of the JSON pointer in a `$ref`. Decodes the escapes of JSON pointers, such as ~0, and of URIs, such
 * as %41. */
std::string unescaped(const std::string &part)
{
    std::string out;
    for (size_t i = 0; i < part.size(); i++) {
        if (part[i] == '~' && i + 1 < part.size() && (part[i + 1] == '0' || part[i + 1] == '1')) {
            out += part[++i] == '0' ? '~' : '/';
        } else if (part[i] == '%' && i + 2 < part.size() && isxdigit(static_cast<unsigned char>(part[i + 1])) &&
                   isxdigit(static_cast<unsigned char>(part[i + 2]))) {
            out += static_cast<char>(strtol(part.substr(i + 1, 2).c_str(), nullptr, 16));
            i += 2;
        } else {
            out += part[i];
        }
    }
    return out;
}

const schema_json *element(const schema_json &value, const std::string &name)
{
    if (value.is_object()) {
        const auto found = value.find(name);
        return found != value.end() ? &*found : nullptr;
    }
    const bool is_index =
        !name.empty() && name.size() < 10 && name.find_first_not_of("0123456789") == std::string::npos;
    const size_t index = is_index ? strtoul(name.c_str(), nullptr, 10) : SIZE_MAX;
    return value.is_array() && index < value.size() ? &value[index] : nullptr;
}

const schema_json *at_pointer(const schema_json &root, const std::string &pointer)
{
    const schema_json *found = &root;
    for (size_t at = 0; at < pointer.size() && found != nullptr;) {
        const size_t end = std::min(pointer.find('/', at + 1), pointer.size());
        found = element(*found, unescaped(pointer.substr(at + 1, end - at - 1)));
        at = end;
    }
    return found;
}

/* Resolves a URI reference against a base URI (RFC 3986). The segments . and .. are not resolved. */
std::string joined(const std::string &base, const std::string &address)
{
    const size_t colon = address.find(':');
    if (address.empty() || base.empty() || (colon != std::string::npos && colon < address.find('/'))) {
        return address.empty() ? base : address;
    }
    const size_t host = base.find("://");
    if (address[0] == '/') {
        const size_t path = host != std::string::npos ? base.find('/', host + 3) : 0;
        return base.substr(0, path) + address;
    }
    const size_t slash = base.rfind('/');
    const bool has_path = slash != std::string::npos && (host == std::string::npos || slash > host + 2);
    return (has_path ? base.substr(0, slash + 1) : host != std::string::npos ? base + "/" : "") + address;
}

/* Finds the JSON pointer of `wanted` by searching the whole document. The path of each schema is not recorded, because
 * recording would slow every request, and only error messages need a path. */
bool path_to(const schema_json &at, const schema_json *wanted, std::string &path)
{
    if (&at == wanted) {
        return true;
    }
    const size_t n = path.size();
    size_t index = 0;
    for (auto it = at.begin(); at.is_structured() && it != at.end(); ++it, index++) {
        path += "/" + (at.is_object() ? it.key() : std::to_string(index));
        if (path_to(*it, wanted, path)) {
            return true;
        }
        path.resize(n);
    }
    return false;
}

} // namespace

references::references(const schema_json &document) : root(document)
{
    if (const std::string *draft = text_of(root, "$schema")) {
        is_old = std::any_of(std::begin(OLD_DRAFTS), std::end(OLD_DRAFTS),
                             [&](const char *name) { return draft->find(name) != std::string::npos; });
    }
    named[""] = &root;
    find_ids(root, "", true);
    if (!has_ids) {
        bases.clear();
        seen_objects seen;
        (void)find_equal(root, seen);
    }
}

/* Finds objects in the value that occur more than once. Records every new object in `seen`. Records the first
 * occurrence of each repeated object in `firsts`. Returns the hash of the value. Hashes are computed from the leaves
 * up, in one pass over the document, and only objects with equal hashes are compared. */
size_t references::find_equal(const schema_json &value, seen_objects &seen)
{
    if (!value.is_structured()) {
        return std::hash<schema_json>{}(value);
    }
    size_t hash = value.is_object() ? 1 : 2;
    const auto mix = [&](size_t next) { hash = (hash ^ next) * 0x9e3779b97f4a7c15u + (hash >> 29); };
    for (auto it = value.begin(); it != value.end(); ++it) {
        if (value.is_object()) {
            mix(std::hash<std::string>{}(it.key()));
        }
        mix(find_equal(*it, seen));
    }
    if (value.is_object()) {
        const auto [begin, end] = seen.equal_range(hash);
        const auto first = std::find_if(begin, end, [&](const auto &one) { return *one.second == value; });
        if (first != end) {
            firsts.emplace(&value, first->second);
        } else {
            seen.emplace(hash, &value);
        }
    }
    return hash;
}

const schema_json *references::first_equal(const schema_json *schema) const
{
    const auto found = firsts.find(schema);
    return found != firsts.end() ? found->second : schema;
}

/* Records the names that a schema gives itself, by `$id` or `$anchor`. If the schema has an `$id`, `base` becomes this
 * URI, against which references inside the schema are resolved. Up to draft 7, a `$ref` hides all other keywords of its
 * object, including `$id`. In schemas up to draft 7, `id` means the same as `$id`. In later drafts `id` is not a
 * keyword. An id such as "#name" names a schema within the document, as `$anchor` does since draft 2019-09. */
void references::find_id(const schema_json &value, std::string &base)
{
    if (is_old && text_of(value, "$ref") != nullptr) {
        return;
    }
    for (const char *name : {"$id", "id"}) {
        const std::string *id = text_of(value, name);
        if (id == nullptr || (name[0] == 'i' && !is_old)) {
            continue;
        }
        has_ids = true;
        const size_t hash = id->find('#');
        const std::string address = joined(base, id->substr(0, hash));
        if (hash == 0) {
            named.emplace(base + *id, &value);
        } else {
            base = address;
            named.emplace(base, &value);
        }
    }
    for (const char *name : {"$anchor", "$dynamicAnchor"}) {
        if (const std::string *anchor = text_of(value, name)) {
            has_ids = true;
            named.emplace(base + "#" + *anchor, &value);
        }
    }
}

/* Records the base URI of each object. A `$ref` is resolved against the base URI of the schema that contains it.
 * `is_schema` is false for the objects in `properties` and similar keywords. The members of such an object are property
 * names and not keywords. So a property called "$id" is not an id. Values (const, enum, default, examples) contain no
 * schemas and are skipped. */
void references::find_ids(const schema_json &value, const std::string &base_around, bool is_schema)
{
    std::string base = base_around;
    if (value.is_object() && is_schema) {
        find_id(value, base);
    }
    if (value.is_object()) {
        bases[&value] = base;
    }
    for (auto it = value.begin(); value.is_structured() && it != value.end(); ++it) {
        const bool is_value =
            value.is_object() && std::find(std::begin(VALUES), std::end(VALUES), it.key()) != std::end(VALUES);
        if (it->is_structured() && !(is_value && is_schema)) {
            const bool is_map = value.is_object() && is_schema &&
                                (it.key() == "properties" || it.key() == "patternProperties" || it.key() == "$defs" ||
                                 it.key() == "definitions");
            find_ids(*it, base, !is_map);
        }
    }
}

const schema_json *references::resource(const std::string &address) const
{
    const auto found = named.find(address);
    return found != named.end() ? found->second : nullptr;
}

/* Resolves the `$ref` against the schema's base URI, then follows the fragment of the `$ref`. A fragment is a JSON
 * pointer such as #/a/b, or an anchor such as #a. If the `$ref` is only a fragment and the pointer leads nowhere in the
 * schema at the base URI, the pointer is followed from the root of the document. */
const schema_json *references::target(const schema_json &schema) const
{
    const std::string *ref = text_of(schema, "$ref");
    if (ref == nullptr) {
        return nullptr;
    }
    const auto base = bases.find(&schema);
    const size_t hash = std::min(ref->find('#'), ref->size());
    const std::string fragment = hash < ref->size() ? ref->substr(hash + 1) : "";
    const std::string around = base != bases.end() ? base->second : "";
    const std::string address = joined(around, ref->substr(0, hash));
    if (!fragment.empty() && fragment[0] != '/') {
        const schema_json *found = resource(address + "#" + unescaped(fragment));
        return found != nullptr ? found : resource("#" + unescaped(fragment));
    }
    const schema_json *from = resource(address);
    if (from == nullptr && hash == 0) {
        from = &root;
    }
    const schema_json *found = from != nullptr ? at_pointer(*from, fragment) : nullptr;
    return found == nullptr && hash == 0 ? at_pointer(root, fragment) : found;
}

std::string references::path(const schema_json *schema) const
{
    std::string path;
    return path_to(root, schema, path) ? path : "";
}
