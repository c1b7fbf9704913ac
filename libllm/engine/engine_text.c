#include <stdlib.h>
#include <string.h>

#include "engine/engine.h"
#include "text/answer/answer_parser.h"
#include "text/constraint/constraint_make.h"

int64_t llm_tokenize(const llm_engine *engine, const char *text, size_t n_bytes, int add_special, int parse_special,
                     int32_t *out, size_t n_out)
{
    const model *m = engine->model;
    return m->ops->tokenize(m, text, n_bytes, add_special != 0, parse_special != 0, out, n_out);
}

int64_t llm_detokenize(const llm_engine *engine, const int32_t *tokens, size_t n_tokens, int special, char *out,
                       size_t n_out)
{
    const model *m = engine->model;
    size_t need = 0;
    for (size_t i = 0; i < n_tokens; i++) {
        if (tokens[i] < 0 || (uint32_t)tokens[i] >= m->info.n_vocab) {
            return INT64_MIN;
        }
        const size_t room = need < n_out ? n_out - need : 0;
        const int32_t n = m->ops->piece(m, tokens[i], special != 0, room > 0 ? out + need : out, room);
        need += (size_t)(n < 0 ? -n : n);
    }
    return need <= n_out ? (int64_t)need : -(int64_t)need;
}

int llm_chat_render(const llm_engine *engine, const char *chat_json, size_t n_bytes, llm_prompt *out, char *error,
                    size_t error_bytes)
{
    return chat_render(engine->chat, chat_json, n_bytes, out, error, error_bytes);
}

const char *llm_chat_template(const llm_engine *engine)
{
    return engine->model->ops->chat_template(engine->model);
}

int32_t llm_fim_token(const llm_engine *engine, uint32_t mark)
{
    return mark < LLM_FIM_N ? engine->model->ops->fim(engine->model, (llm_fim)mark) : -1;
}

void llm_prompt_free(llm_prompt *prompt)
{
    free(prompt->tokens);
    free(prompt->text);
    free(prompt->boundaries);
    free(prompt->syntax);
    free(prompt->constraint);
    free(prompt->preserved);
    free(prompt->stops);
    memset(prompt, 0, sizeof *prompt);
}

int llm_answer_parser_open(const llm_engine *engine, const char *syntax, size_t n_bytes, llm_answer_parser **out,
                           char *error, size_t error_bytes)
{
    (void)engine;
    return answer_parser_open(syntax, n_bytes, out, error, error_bytes);
}

int llm_answer_parser_feed(llm_answer_parser *parser, const char *text, size_t n_bytes, int is_final, int is_cut,
                           const char **diffs, size_t *n_diffs_bytes)
{
    return answer_parser_feed(parser, text, n_bytes, is_final, is_cut, diffs, n_diffs_bytes);
}

size_t llm_answer_parser_rescan_bytes(const llm_answer_parser *parser)
{
    return answer_parser_rescan_bytes(parser);
}

void llm_answer_parser_close(llm_answer_parser *parser)
{
    answer_parser_close(parser);
}

int llm_constraint_make(const llm_engine *engine, const char *wanted, size_t n_bytes, llm_document *out, char *error,
                        size_t error_bytes)
{
    return constraint_make(engine->model, wanted, n_bytes, out, error, error_bytes);
}

void llm_document_free(llm_document *document)
{
    free(document->text);
    *document = (llm_document){0};
}

const char *llm_version(void)
{
    return LLM_VERSION_TEXT;
}

const char *llm_backend_version(void)
{
    return LLM_BACKEND_VERSION_TEXT;
}

void llm_processor(char *out, size_t n_out)
{
    model_llama_processor(out, n_out);
}

void llm_machine_measure(llm_machine *out)
{
    model_llama_machine(out);
}

size_t llm_devices(llm_device *out, size_t n_out)
{
    return model_llama_devices(out, n_out);
}
