/* references.h: resolves the `$ref`s of one JSON schema: JSON pointers, `$id` and `$anchor`. Nothing is downloaded, so
 * a `$ref` to another document resolves to nothing. The object refers to the document, which must outlive it, and
 * identifies schemas by their addresses in it. */
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

    /* Returns the schema that the `$ref` of `schema` names, or NULL if the document does not contain it. */
    const schema_json *target(const schema_json &schema) const;

    /* Returns true if the schema is of draft 7 or earlier, where a `$ref` hides the other keywords of its object. */
    bool hides_siblings() const
    {
        return is_old;
    }

    /* Returns the first schema of the document that equals `schema`, so that equal schemas are compiled once, because
     * generated documents (Kubernetes) repeat schemas instead of referring to them. If the document has ids, returns
     * `schema` itself, since the same `$ref` can then mean different schemas in different places. */
    const schema_json *first_equal(const schema_json *schema) const;

    /* Returns the JSON pointer of the schema, such as "/properties/a", for messages. "" stands for the root and for a
     * schema outside the document. */
    std::string path(const schema_json *schema) const;

  private:
    const schema_json &root;
    bool is_old = false, has_ids = false;
    std::map<std::string, const schema_json *> named; /* schemas by their absolute address, including #anchor */
    std::map<const schema_json *, std::string> bases; /* base address of each schema, if the document has ids */
    std::unordered_map<const schema_json *, const schema_json *> firsts; /* the first equal object of each repeated
                                                                          * object */

    using seen_objects = std::unordered_multimap<size_t, const schema_json *>; /* objects by hash */
    size_t find_equal(const schema_json &value, seen_objects &seen);

    void find_ids(const schema_json &value, const std::string &base, bool is_schema);
    void find_id(const schema_json &value, std::string &base);
    const schema_json *resource(const std::string &address) const;
};

#endif
