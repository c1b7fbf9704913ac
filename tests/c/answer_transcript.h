/* answer_transcript.h: feeds an answer to a parser in pieces, and joins the parser's diffs into one text: "[text]...",
 * "[reasoning]...", "[call 0 name]arguments...". Adjacent diffs of the same part are merged. Texts have JSON's
 * escapes. */
#ifndef ANSWER_TRANSCRIPT_H
#define ANSWER_TRANSCRIPT_H

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include "random.h"
#include "text/answer/answer_parser.h"
#include "text/chat/chat.h"

#include "fake_model.h"

typedef struct transcript {
    char *text; /* NUL-terminated; owned */
    size_t n;
    char last[128]; /* the part to which the end of the text belongs */
    char ids[256];  /* ids of the calls, each followed by a space */
    size_t n_diffs;
    uint64_t work, work_most; /* bytes parsed in total, and the most for one piece */
    bool has_dropped;         /* a part of an unfinished or malformed call is missing in the text */
} transcript;

static void transcript_add(transcript *t, const char *text, size_t n)
{
    t->text = realloc(t->text, t->n + n + 1);
    memcpy(t->text + t->n, text, n);
    t->n += n;
    t->text[t->n] = '\0';
}

/* Returns the JSON string that follows "name": in [at, end), or NULL if there is none. */
static const char *transcript_member(const char *at, const char *end, const char *name, size_t *n)
{
    char key[32];
    snprintf(key, sizeof key, "\"%s\":", name);
    const size_t n_key = strlen(key);
    for (; at + n_key < end; at++) {
        if (*at == '"' && strncmp(at, key, n_key) == 0) {
            const char *begin = at += n_key, *p = begin + (*begin == '"');
            while (p < end && (*begin == '"' ? *p != '"' : *p != ',' && *p != '}')) {
                p += *p == '\\' ? 2 : 1;
            }
            *n = (size_t)(p - begin) - (*begin == '"');
            return begin + (*begin == '"');
        }
        if (*at == '"') { /* another string */
            for (at++; at < end && *at != '"'; at += *at == '\\' ? 2 : 1) {
            }
        }
    }
    return NULL;
}

static void transcript_add_diff(transcript *t, const char *at, const char *end)
{
    char head[128];
    size_t n_kind = 0, n_text = 0, n_call = 0, n_name = 0, n_id = 0;
    const char *kind = transcript_member(at, end, "kind", &n_kind), *text = transcript_member(at, end, "text", &n_text),
               *call = transcript_member(at, end, "call", &n_call), *name = transcript_member(at, end, "name", &n_name),
               *id = transcript_member(at, end, "id", &n_id);
    snprintf(head, sizeof head, "%.*s%s%.*s", (int)n_kind, kind, call == NULL ? "" : " ", (int)n_call,
             call == NULL ? "" : call);
    t->n_diffs++;
    if (strcmp(head, t->last) != 0) {
        memcpy(t->last, head, sizeof head);
        transcript_add(t, "[", 1);
        transcript_add(t, head, strlen(head));
        if (name != NULL) {
            transcript_add(t, " ", 1);
            transcript_add(t, name, n_name);
        }
        transcript_add(t, "]", 1);
    }
    if (id != NULL && strlen(t->ids) + n_id + 2 < sizeof t->ids) {
        strncat(t->ids, id, n_id);
        strcat(t->ids, " ");
    }
    transcript_add(t, text, n_text);
}

static void transcript_add_diffs(transcript *t, const char *diffs, size_t n)
{
    const char *begin = NULL;
    for (const char *at = diffs; at < diffs + n; at++) {
        if (*at == '{') {
            begin = at;
        } else if (*at == '"') {
            for (at++; *at != '"'; at += *at == '\\' ? 2 : 1) {
            }
        } else if (*at == '}') {
            transcript_add_diff(t, begin, at + 1);
        }
    }
}

/* Feeds the answer in pieces of `piece` bytes, or of random sizes if `piece` is 0. `is_cut` means that a limit cut the
 * answer off. */
static inline transcript transcript_until(const llm_prompt *p, const char *answer, size_t n, bool is_cut, size_t piece,
                                          random_source *random)
{
    transcript t;
    llm_answer_parser *parser;
    char error[256];
    memset(&t, 0, sizeof t);
    transcript_add(&t, "", 0);
    if (answer_parser_open(p->syntax, p->n_syntax_bytes, &parser, error, sizeof error) != LLM_OK) {
        transcript_add(&t, error, strlen(error));
        return t;
    }
    for (size_t at = 0; at <= n;) {
        const size_t wanted = piece > 0 ? piece : 1 + random_below(random, 40),
                     n_taken = n - at < wanted ? n - at : wanted;
        const char *diffs = NULL;
        size_t n_diffs = 0;
        const bool is_final = at + n_taken == n;
        const uint64_t before = answer_parser_work(parser);
        if (answer_parser_feed(parser, answer + at, n_taken, is_final, is_cut, &diffs, &n_diffs) != LLM_OK) {
            transcript_add(&t, "[refused]", 9);
            break;
        }
        transcript_add_diffs(&t, diffs, n_diffs);
        t.work = answer_parser_work(parser);
        t.work_most = t.work - before > t.work_most ? t.work - before : t.work_most;
        at += is_final ? n + 1 : n_taken;
    }
    t.has_dropped = answer_parser_has_dropped(parser);
    answer_parser_close(parser);
    return t;
}

static inline transcript transcript_of(const llm_prompt *p, const char *answer, size_t n, size_t piece,
                                       random_source *random)
{
    return transcript_until(p, answer, n, false, piece, random);
}

/* A template, and its most recent prompt. */
typedef struct answerer {
    fake_model model;
    chat *chat;
    llm_prompt prompt;
    int status;
    char error[1024];
} answerer;

static inline bool answerer_open(answerer *a, const char *source)
{
    memset(a, 0, sizeof *a);
    a->model = fake_model_open(source);
    return chat_open(&a->model.base, &a->chat, a->error, sizeof a->error) == LLM_OK && chat_has_template(a->chat);
}

static inline int answerer_render(answerer *a, const char *request)
{
    llm_prompt_free(&a->prompt);
    a->error[0] = '\0';
    a->status = chat_render(a->chat, request, strlen(request), &a->prompt, a->error, sizeof a->error);
    return a->status;
}

static inline void answerer_close(answerer *a)
{
    llm_prompt_free(&a->prompt);
    chat_close(a->chat);
}

#endif
