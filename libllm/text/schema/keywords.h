/* keywords.h: the names of a JSON schema's keywords. A condition is a schema or one of its keywords (shape.h). The
 * condition stores the address of the keyword's name, so that comparing two conditions needs no string comparison. Each
 * name must therefore have one address in the whole program, which is why the names are inline variables. */
#ifndef LLM_SCHEMA_KEYWORDS_H
#define LLM_SCHEMA_KEYWORDS_H

namespace keywords {

inline constexpr const char *DEPENDENT_REQUIRED = "dependentRequired", *DEPENDENT_SCHEMAS = "dependentSchemas",
                            *DEPENDENCIES = "dependencies", *PROPERTIES = "properties", *REQUIRED = "required",
                            *ALL_OF = "allOf";

/* Keywords that can be negated separately. A value that violates one of these keywords violates the whole schema. */
inline constexpr const char *SINGLE[] = {
    "type",      "enum",      "const",    "minimum",  "maximum",  "exclusiveMinimum", "exclusiveMaximum",
    "minLength", "maxLength", "pattern",  "minItems", "maxItems", "minProperties",    "maxProperties",
    "anyOf",     "not",       "contains", "items",    "$ref"};

/* Keywords that are ignored if their value in the schema is not a number. The negation of the schema ignores them,
 * too. */
inline constexpr const char *WITH_NUMBER[] = {"minimum",       "maximum",      "exclusiveMinimum", "exclusiveMaximum",
                                              "minLength",     "maxLength",    "minItems",         "maxItems",
                                              "minProperties", "maxProperties"};
inline constexpr const char *WITH_LIST[] = {"enum", "anyOf", ALL_OF, REQUIRED};
inline constexpr const char *WITH_OBJECT[] = {PROPERTIES};
inline constexpr const char *WITH_TEXT[] = {"pattern"};

/* Keywords that cannot be enforced with a grammar. STRICT refuses a schema that has one of them. */
inline constexpr const char *NOT_ENFORCED[] = {"unevaluatedProperties", "unevaluatedItems", "$dynamicRef",
                                               "$recursiveRef"};

/* Keywords whose negation cannot be enforced. No field of `shape` (shape.h) can express such a negation. */
inline constexpr const char *NOT_NEGATED[] = {"oneOf",
                                              "if",
                                              "additionalProperties",
                                              "patternProperties",
                                              "propertyNames",
                                              "multipleOf",
                                              "divisibleBy",
                                              "uniqueItems",
                                              "prefixItems",
                                              "additionalItems",
                                              "dependentSchemas",
                                              "dependentRequired",
                                              "dependencies",
                                              "format",
                                              "minContains",
                                              "maxContains",
                                              "unevaluatedProperties",
                                              "unevaluatedItems",
                                              "$dynamicRef",
                                              "$recursiveRef"};

} // namespace keywords

#endif
