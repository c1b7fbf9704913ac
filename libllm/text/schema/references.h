/* references.h: where the `$ref`s of one JSON schema lead: JSON pointers, `$id` and `$anchor`. Nothing is fetched: a
 * `$ref` to another document leads nowhere. It refers to the document, which must outlive it; schemas are told apart by
 * their addresses in it. */
#ifndef LLM_SCHEMA_REFERENCES_H
#define LLM_SCHEMA_REFERENCES_H

#include <nlohmann/json.hpp>

#include <map>
#include <string>
#include <unordered_map>

using schema_json = nlohmann::ordered_json;

class references {
  public:
    explicit references(const schema_json &document);

    /* Returns the schema that the `$ref` of `schema` names; NULL, if this document has none. */
    const schema_json *target(const schema_json &schema) const;

    /* Until draft 7, a `$ref` hides the keywords beside it. */
    bool hides_siblings() const
    {
        return is_old;
    }

    /* Returns the first schema of the document that equals this one; the schema itself where the document has ids,
     * since the same `$ref` may lead elsewhere in another place then. Generated documents (Kubernetes) repeat their
     * parts instead of referring to them, and what is found equal is compiled once. */
    const schema_json *first_equal(const schema_json *schema) const;

    /* Returns the JSON pointer of the schema, such as "/properties/a", for messages; "" also for what is not in the
     * document. */
    std::string path(const schema_json *schema) const;

  private:
    const schema_json &root;
    bool is_old = false, has_ids = false;
    std::map<std::string, const schema_json *> named; /* by absolute address, with #anchor */
    std::map<const schema_json *, std::string> bases; /* where the document has ids */
    std::unordered_map<const schema_json *, const schema_json *>
        firsts; /* of the objects that are not the first themselves */

    using seen_objects = std::unordered_multimap<size_t, const schema_json *>; /* by hash */
    size_t find_equal(const schema_json &value, seen_objects &seen);

    void find_ids(const schema_json &value, const std::string &base, bool is_schema);
    void find_id(const schema_json &value, std::string &base);
    const schema_json *resource(const std::string &address) const;
};

#endif
