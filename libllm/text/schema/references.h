/* references.h: finds the schema to which a `$ref` refers. The `$ref` can be a JSON pointer, an `$id` or an `$anchor`
 * within one schema document. Nothing is downloaded, so a `$ref` to another document is not found. A `references`
 * object keeps a C++ reference to the document. The document must outlive the object. Each schema is identified by its
 * memory address. */
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

    /* Returns the schema to which the `$ref` of `schema` refers. Returns NULL if the document does not contain that
     * schema. */
    const schema_json *target(const schema_json &schema) const;

    /* Returns true if the schema is of draft 7 or earlier, where a `$ref` hides the other keywords of its object. */
    bool hides_siblings() const
    {
        return is_old;
    }

    /* Returns the first schema in the document with the same content as `schema`. So equal schemas are compiled only
     * once. Generated documents (Kubernetes) repeat schemas instead of referring to them. If the document has an `$id`,
     * returns `schema` itself. Two schemas with the same content can then differ in meaning, because the base URI
     * decides what a `$ref` in them refers to. */
    const schema_json *first_equal(const schema_json *schema) const;

    /* Returns the JSON pointer of the schema, such as "/properties/a", for messages. Returns "" for the root, and for a
     * schema outside the document. */
    std::string path(const schema_json *schema) const;

  private:
    const schema_json &root;
    bool is_old = false, has_ids = false;
    std::map<std::string, const schema_json *> named; /* schemas by absolute URI, including #anchor */
    std::map<const schema_json *, std::string> bases; /* base URI of each schema, if there are `$id`s */
    std::unordered_map<const schema_json *, const schema_json *> firsts; /* for each object that occurs repeatedly, the
                                                                          * object's first occurrence */

    using seen_objects = std::unordered_multimap<size_t, const schema_json *>; /* objects by hash */
    size_t find_equal(const schema_json &value, seen_objects &seen);

    void find_ids(const schema_json &value, const std::string &base, bool is_schema);
    void find_id(const schema_json &value, std::string &base);
    const schema_json *resource(const std::string &address) const;
};

#endif
