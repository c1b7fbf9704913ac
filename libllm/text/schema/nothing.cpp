/* nothing.cpp: detects nodes that no value can satisfy. A node is a set of conditions on one value (shape.h). Only a
 * few levels of the schema are examined. This file also collects the conditions of a shape on one object member.
 *
 * If is_nothing returns true, it is proved that no value satisfies the node. If is_nothing returns false, it is unknown
 * whether a value satisfies the node, because patterns, array items and multipleOf are not examined. The result only
 * serves to find alternatives of oneOf that exclude each other. A wrong "false" only adds a needless negation to the
 * oneOf, while a wrong "true" would allow invalid values. */
#include <algorithm>

#include "text/schema/shape.h"

namespace {

/* Returns whether a lower and an upper bound together exclude every number. Does not check whether there is an integer
 * between the bounds: for 1.2 and 1.8 the result is false. */
bool are_apart(const std::vector<shape::bound> &least, const std::vector<shape::bound> &most)
{
    for (const shape::bound &low : least) {
        for (const shape::bound &high : most) {
            const bool is_open = low.is_exclusive || high.is_exclusive;
            if (is_open ? *low.value >= *high.value : *low.value > *high.value) {
                return true;
            }
        }
    }
    return false;
}

} // namespace

node expansion::member_node(const shape &s, const std::string &name)
{
    node out;
    for (const schema_json *source : s.object_sources) {
        bool is_declared = false;
        if (source->contains("properties") && (*source)["properties"].is_object()) {
            (void)budget.take(1 + (*source)["properties"].size() / 8);
            const auto found = (*source)["properties"].find(name);
            is_declared = found != (*source)["properties"].end();
            if (is_declared) {
                out.push_back({&*found});
            }
        }
        if (source->contains("patternProperties") && (*source)["patternProperties"].is_object()) {
            for (auto it = (*source)["patternProperties"].begin(); it != (*source)["patternProperties"].end(); ++it) {
                const automaton *pattern = patterns.find(it.key(), nullptr);
                if (pattern == nullptr || pattern->accepts(name)) {
                    is_declared = true;
                    /* a pattern without an automaton could match or not, so its schema is left out */
                    if (pattern != nullptr) {
                        out.push_back({&*it});
                    }
                }
            }
        }
        if (!is_declared && source->contains("additionalProperties")) {
            out.push_back({&(*source)["additionalProperties"]});
        }
    }
    for (const auto &[member, what] : s.members) {
        if (member == name) {
            out.push_back(what);
        }
    }
    return node_of(std::move(out));
}

bool expansion::is_nothing(const node &n, size_t depth)
{
    if (n.empty() || depth == 0 || budget.is_spent()) {
        return false;
    }
    const auto found = nothing.find(n);
    if (found != nothing.end()) {
        return found->second;
    }
    nothing[n] = false; /* provisional result, which is used if the node contains itself */
    bool is_all = true;
    const std::vector<shape> shapes = shapes_of(n); /* copied, because the loop changes the cache to which the result of
                                                     * shapes_of refers */
    for (const shape &s : shapes) {
        is_all = is_all && is_nothing_shape(s, n, depth);
    }
    nothing[n] = is_all;
    return is_all;
}

bool expansion::is_nothing_shape(const shape &s, const node &n, size_t depth)
{
    if (s.types == json_type::NOTHING) {
        return true;
    }
    if (s.values.has_value()) {
        return std::none_of(s.values->begin(), s.values->end(),
                            [&](const schema_json *value) { return may_be_valid(*value, n); });
    }
    uint8_t left = s.types;
    if (are_apart(s.least, s.most)) {
        left = static_cast<uint8_t>(left & ~json_type::NUMBER);
    }
    if (s.length_least > s.length_most) {
        left = static_cast<uint8_t>(left & ~json_type::STRING);
    }
    if (s.items_least > s.items_most) {
        left = static_cast<uint8_t>(left & ~json_type::ARRAY);
    }
    if ((left & json_type::OBJECT) != 0) {
        const bool is_empty =
            s.members_least > s.members_most ||
            std::any_of(s.required.begin(), s.required.end(), [&](const auto &name) {
                return s.absent.count(name) > 0 || (!budget.is_spent() && is_nothing(member_node(s, name), depth - 1));
            });
        left = static_cast<uint8_t>(is_empty ? left & ~json_type::OBJECT : left);
    }
    return left == json_type::NOTHING;
}
