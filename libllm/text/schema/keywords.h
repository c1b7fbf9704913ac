/* keywords.h: the names of a JSON schema's keywords. A condition (shape.h) refers to a keyword by the address of its
 * name, so that conditions are compared and sorted without comparing texts. One keyword must therefore have one
 * address, which is why the names are inline variables. */
#ifndef LLM_SCHEMA_KEYWORDS_H
#define LLM_SCHEMA_KEYWORDS_H

namespace keywords {

inline constexpr const char *DEPENDENT_REQUIRED = "dependentRequired", *DEPENDENT_SCHEMAS = "dependentSchemas",
                            *DEPENDENCIES = "dependencies", *PROPERTIES = "properties", *REQUIRED = "required",
                            *ALL_OF = "allOf";

/* Keywords that are negated one by one, since one violated keyword violates the schema. */
inline constexpr const char *SINGLE[] = {
    "type",      "enum",      "const",    "minimum",  "maximum",  "exclusiveMinimum", "exclusiveMaximum",
    "minLength", "maxLength", "pattern",  "minItems", "maxItems", "minProperties",    "maxProperties",
    "anyOf",     "not",       "contains", "items",    "$ref"};

/* Keywords that are ignored, also in a negation, if their value is not a number. */
inline constexpr const char *WITH_NUMBER[] = {"minimum",       "maximum",      "exclusiveMinimum", "exclusiveMaximum",
                                              "minLength",     "maxLength",    "minItems",         "maxItems",
                                              "minProperties", "maxProperties"};
inline constexpr const char *WITH_LIST[] = {"enum", "anyOf", ALL_OF, REQUIRED};
inline constexpr const char *WITH_OBJECT[] = {PROPERTIES};
inline constexpr const char *WITH_TEXT[] = {"pattern"};

/* Keywords that no grammar enforces, and that STRICT refuses. */
inline constexpr const char *NOT_ENFORCED[] = {"unevaluatedProperties", "unevaluatedItems", "$dynamicRef",
                                               "$recursiveRef"};

/* Keywords whose negation shapes cannot express. */
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
