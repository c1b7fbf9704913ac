#include "text/constraint/constraint_make.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>

#include "text/constraint/constraint_grammar.h"
#include "text/grammar/grammar.h"
#include "text/template/chat_budget.h"

namespace {

using json = schema_json;

std::string document_of(const model *m, const std::string &request)
{
    const json all = constraint_json(request, "the request");
    if (!all.is_object() || !all.contains("kind") || !all["kind"].is_string()) {
        throw grammar_fault("the request has no kind");
    }
    const std::string source = constraint_grammar(m, all["kind"].get<std::string>(), all.value("text", std::string()),
                                                  all.value("strict", true));
    const json document = {{"grammar", source},          {"lazy", false}, {"triggers", json::array()},
                           {"preserved", json::array()}, {"prefill", ""}, {"thinking", nullptr}};
    std::string out = document.dump(-1, ' ', false, json::error_handler_t::replace);
    if (out.size() > LLM_CONSTRAINT_BYTES_MAX) {
        throw grammar_fault("it unfolds to a grammar of " + std::to_string(out.size()) + " bytes; at most " +
                            std::to_string(static_cast<int>(LLM_CONSTRAINT_BYTES_MAX)));
    }
    return out;
}

} // namespace

int constraint_make(const model *m, const char *request, size_t n_bytes, llm_document *out, char *error,
                    size_t error_bytes)
{
    int status = LLM_OK;
    const auto refuse = [&](int why, const char *text) {
        status = why;
        if (error != nullptr && error_bytes > 0) {
            snprintf(error, error_bytes, "%s", text);
        }
    };
    const auto attempt = [&]() noexcept {
        try {
            const std::string document = document_of(m, std::string(request, n_bytes));
            out->text = static_cast<char *>(malloc(document.size() + 1));
            if (out->text == nullptr) {
                throw std::bad_alloc();
            }
            memcpy(out->text, document.c_str(), document.size() + 1);
            out->n_bytes = document.size();
        } catch (const std::bad_alloc &) {
            refuse(LLM_NO_MEMORY, "out of memory");
        } catch (const std::exception &e) { /* grammar_fault, or a member of the wrong type in the request */
            refuse(LLM_INVALID, e.what());
        } catch (...) {
            refuse(LLM_INVALID, "it cannot be expressed");
        }
    };
    *out = {nullptr, 0};
    if (!chat_call_with_stack(std::cref(attempt))) {
        refuse(LLM_NO_MEMORY, "out of memory");
    }
    return status;
}
