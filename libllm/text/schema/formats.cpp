#include "text/schema/formats.h"

#include <map>
#include <mutex>
#include <set>

#include "text/schema/regex_automaton.h"

namespace {

/* Fractions of seconds, and the numbers in durations, have at most nine digits, because a confused model can write
 * digits forever. The pattern of dates knows the number of days of each month, including February in leap years. */
const std::string YEAR_MONTH_DAY =
    "(?:[0-9]{4}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)|"
    "02-(?:0[1-9]|1[0-9]|2[0-8]))|(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|(?:[02468][048]|[13579][26])00)-02-29)";
const std::string ZONE = "(?:[Zz]|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])";
const std::string CLOCK =
    "(?:(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:[.][0-9]{1,9})?" + ZONE + "|23:59:60(?:[.][0-9]{1,9})?[Zz])";
const std::string BYTE = "(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])";
const std::string IPV4 = BYTE + "(?:[.]" + BYTE + "){3}";
const std::string GROUP = "[0-9A-Fa-f]{1,4}";
const std::string LABEL = "[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?";
const std::string HOST = LABEL + "(?:[.]" + LABEL + ")*";
const std::string ATOM = "[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+";
const std::string DAYS = "(?:[0-9]{1,9}Y(?:[0-9]{1,9}M(?:[0-9]{1,9}D)?)?|[0-9]{1,9}M(?:[0-9]{1,9}D)?|[0-9]{1,9}D)";
const std::string HOURS = "T(?:[0-9]{1,9}H(?:[0-9]{1,9}M(?:[0-9]{1,9}S)?)?|[0-9]{1,9}M(?:[0-9]{1,9}S)?|[0-9]{1,9}S)";
/* characters of a URI after its scheme */
const std::string SAFE = "[A-Za-z0-9._~!$&'()*+,;=:@/?-]|%[0-9A-Fa-f]{2}";
const std::string SAFE_BEYOND = "|[\\u00a0-\\ud7ff\\uf900-\\uffef]";
const std::string LETTER = "(?:[A-Za-z0-9_]|%[0-9A-Fa-f]{2})";
/* a variable of a URI template */
const std::string VARIABLE = LETTER + "(?:[.]?" + LETTER + ")*(?::[1-9][0-9]{0,3}|[*])?";

std::string ipv6()
{
    std::string all =
        "(?:" + GROUP + ":){7}" + GROUP + "|(?:" + GROUP + ":){6}" + IPV4 + "|::(?:" + GROUP + ":){0,5}" + IPV4;
    /* `before` is the number of groups before "::". The "::" stands for at least one group */
    for (int before = 0; before <= 7; before++) {
        const std::string first = before == 0 ? "" : GROUP + "(?::" + GROUP + "){" + std::to_string(before - 1) + "}";
        const int behind = 7 - before;
        all += "|" + first +
               "::" + (behind == 0 ? "" : "(?:" + GROUP + "(?::" + GROUP + "){0," + std::to_string(behind - 1) + "})?");
        if (before > 0 && before <= 5) {
            all += "|" + first + "::(?:" + GROUP + ":){0," + std::to_string(5 - before) + "}" + IPV4;
        }
    }
    return all;
}

/* Returns the pattern of an absolute URI. `safe` is the pattern of the characters after the scheme. The content of
 * brackets (an IPv6 address) is not checked. */
std::string address(const std::string &safe)
{
    return "[A-Za-z][A-Za-z0-9+.-]*:(?://(?:(?:" + safe + ")|\\[[0-9A-Fa-f:.]+\\])*|(?:" + safe + ")*)(?:#(?:" + safe +
           ")*)?";
}

std::string reference(const std::string &safe)
{
    return "(?:" + address(safe) + "|(?:" + safe + ")*(?:#(?:" + safe + ")*)?)";
}

std::map<std::string, std::string> made()
{
    const std::string uuid = "[0-9A-Fa-f]{8}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{12}";
    std::map<std::string, std::string> all = {
        {"date", YEAR_MONTH_DAY},
        {"time", CLOCK},
        {"date-time", YEAR_MONTH_DAY + "[Tt ]" + CLOCK},
        {"duration", "P(?:[0-9]{1,9}W|" + DAYS + "(?:" + HOURS + ")?|" + HOURS + ")"},
        {"email", ATOM + "(?:[.]" + ATOM + ")*@" + HOST},
        {"hostname", HOST},
        {"ipv4", IPV4},
        {"ipv6", ipv6()},
        {"uuid", uuid},
        {"uri", address(SAFE)},
        {"uri-reference", reference(SAFE)},
        {"iri", address(SAFE + SAFE_BEYOND)},
        {"iri-reference", reference(SAFE + SAFE_BEYOND)},
        {"uri-template", "(?:[^\\x00-\\x20\"'<>\\\\^`{|}%]|%[0-9A-Fa-f]{2}|\\{[+#./;?&=,!@|]?" + VARIABLE + "(?:," +
                             VARIABLE + ")*\\})*"},
        {"json-pointer", "(?:/(?:[^~/]|~[01])*)*"},
        {"relative-json-pointer", "(?:0|[1-9][0-9]*)(?:#|(?:/(?:[^~/]|~[01])*)*)"},
    };
    for (const char *version : {"1", "2", "3", "4", "5"}) {
        all[std::string("uuid") + version] = uuid;
    }
    for (auto &[name, expression] : all) {
        expression = "^(?:" + expression + ")$";
    }
    return all;
}

} // namespace

bool format_is_standard(const std::string &name)
{
    static const std::set<std::string> others = {"regex", "idn-email", "idn-hostname"};
    return others.count(name) > 0 || format_automaton(name) != nullptr;
}

std::shared_ptr<const automaton> format_automaton(const std::string &name)
{
    static const std::map<std::string, std::string> expressions = made();
    static std::mutex lock;
    static std::map<std::string, std::shared_ptr<const automaton>> known;
    const auto expression = expressions.find(name);
    if (expression == expressions.end()) {
        return nullptr;
    }
    const std::lock_guard<std::mutex> hold(lock);
    std::shared_ptr<const automaton> &found = known[name];
    if (found == nullptr) {
        /* the automaton is kept for all schemas, so its work is not charged to the budget of the current schema */
        work_budget own;
        found = std::make_shared<const automaton>(regex_automaton(expression->second, own));
    }
    return found;
}
