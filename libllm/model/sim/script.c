/* script.c: reads a script, and follows it while a sequence grows. The automaton of Aho and Corasick (1975) finds the
 * triggers with one table look-up per byte of text. The automaton's state is a number, so a saved state can contain
 * this number. */
#include "model/sim/script.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "llm.h"

typedef struct reply {
    const char *text; /* points into the script's own copy of the file */
    size_t n;
} reply;

struct sim_script {
    char *source;
    size_t n_source;
    reply replies[SIM_REPLIES_MAX];
    uint32_t n_replies;
    uint16_t (*next)[256]; /* next node for each node and byte; node 0 is the root */
    uint16_t *ends;        /* number of the reply whose trigger ends at the node, counted from 1, or 0 */
    uint16_t *parents;     /* failure links, used only to build the automaton. The text of a node is the beginning of a
                            * trigger. The node's link leads to the node whose text is the longest proper suffix of
                            * that text */
    uint32_t n_nodes;
};

/* ---- read a script ---- */

static int refuse(char *error, size_t error_bytes, const char *path, const char *why)
{
    snprintf(error, error_bytes, "sim: script=%s: %s", path, why);
    return LLM_INVALID;
}

static int source_read(sim_script *s, const char *path, char *error, size_t error_bytes)
{
    FILE *file = fopen(path, "rb");
    if (file == NULL) {
        return refuse(error, error_bytes, path, strerror(errno));
    }
    s->source = malloc(SIM_SCRIPT_BYTES_MAX + 1);
    int status = s->source == NULL ? LLM_NO_MEMORY : LLM_OK;
    if (status == LLM_OK) {
        s->n_source = fread(s->source, 1, SIM_SCRIPT_BYTES_MAX + 1, file);
        if (ferror(file) || s->n_source > SIM_SCRIPT_BYTES_MAX) {
            status = refuse(error, error_bytes, path, ferror(file) ? "cannot be read" : "is larger than 1 MiB");
        }
    }
    fclose(file);
    return status;
}

static bool trigger_add(sim_script *s, const char *text, size_t n)
{
    uint16_t at = 0;
    for (size_t i = 0; i < n; i++) {
        uint16_t *child = &s->next[at][(uint8_t)text[i]];
        if (*child == 0) {
            if (s->n_nodes == SIM_TRIGGER_NODES_MAX) {
                return false;
            }
            *child = (uint16_t)s->n_nodes++;
        }
        at = *child;
    }
    s->ends[at] = (uint16_t)s->n_replies;
    return n > 0;
}

static bool is_trigger_line(const char *line, const char *end)
{
    return end - line > 2 && line[0] == '?' && line[1] == ' ';
}

/* Returns the line end of the line that begins at `line`, or the end of the source. */
static const char *line_end(const char *line, const char *end)
{
    const char *found = memchr(line, '\n', (size_t)(end - line));
    return found != NULL ? found : end;
}

static int entries_read(sim_script *s, const char *path, char *error, size_t error_bytes)
{
    const char *end = s->source + s->n_source;
    reply *open = NULL;
    for (const char *line = s->source; line < end;) {
        const char *stop = line_end(line, end);
        if (is_trigger_line(line, stop)) {
            if (s->n_replies == SIM_REPLIES_MAX) {
                return refuse(error, error_bytes, path, "has more than 1024 entries");
            }
            open = &s->replies[s->n_replies++];
            *open = (reply){stop < end ? stop + 1 : end, 0};
            if (!trigger_add(s, line + 2, (size_t)(stop - line) - 2)) {
                return refuse(error, error_bytes, path, "the triggers are too long together");
            }
        } else if (open != NULL) {
            open->n = (size_t)(stop - open->text);
        }
        line = stop + 1;
    }
    return s->n_replies > 0 ? LLM_OK : refuse(error, error_bytes, path, "has no line that begins with \"? \"");
}

/* Turns the trie of the triggers into an automaton. Each node has a failure link (`parents`) to a node nearer to the
 * root. If a node lacks a transition, it gets the transition of the node at its failure link. The nodes are visited
 * breadth first. So the node at the failure link is complete before it is used. */
static void automaton_build(sim_script *s, uint16_t *queue)
{
    size_t n_queued = 0;
    for (int byte = 0; byte < 256; byte++) {
        if (s->next[0][byte] != 0) {
            queue[n_queued++] = s->next[0][byte];
        }
    }
    for (size_t i = 0; i < n_queued; i++) {
        uint16_t at = queue[i], back = s->parents[at];
        s->ends[at] = s->ends[at] != 0 ? s->ends[at] : s->ends[back];
        for (int byte = 0; byte < 256; byte++) {
            uint16_t child = s->next[at][byte];
            if (child == 0) {
                s->next[at][byte] = s->next[back][byte];
            } else {
                s->parents[child] = s->next[back][byte];
                queue[n_queued++] = child;
            }
        }
    }
}

int sim_script_open(const char *path, sim_script **out, char *error, size_t error_bytes)
{
    *out = NULL;
    sim_script *s = calloc(1, sizeof *s);
    uint16_t *queue = calloc(SIM_TRIGGER_NODES_MAX, sizeof *queue);
    int status = LLM_NO_MEMORY;
    if (s != NULL && queue != NULL) {
        s->n_nodes = 1;
        s->next = calloc(SIM_TRIGGER_NODES_MAX, sizeof *s->next);
        s->ends = calloc(SIM_TRIGGER_NODES_MAX, sizeof *s->ends);
        s->parents = calloc(SIM_TRIGGER_NODES_MAX, sizeof *s->parents);
        if (s->next != NULL && s->ends != NULL && s->parents != NULL) {
            status = source_read(s, path, error, error_bytes);
        }
    }
    if (status == LLM_OK) {
        status = entries_read(s, path, error, error_bytes);
    }
    if (status == LLM_OK) {
        automaton_build(s, queue);
        *out = s;
    } else {
        sim_script_close(s);
    }
    free(queue);
    return status;
}

void sim_script_close(sim_script *s)
{
    if (s != NULL) {
        free(s->source);
        free(s->next);
        free(s->ends);
        free(s->parents);
        free(s);
    }
}

uint64_t sim_script_hash(const sim_script *s)
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325); /* FNV-1a */
    for (size_t i = 0; i < s->n_source; i++) {
        hash = (hash ^ (uint8_t)s->source[i]) * UINT64_C(0x100000001b3);
    }
    return hash;
}

/* ---- follow a script while a sequence grows ---- */

bool sim_cue_is_valid(const sim_script *s, const sim_cue *c)
{
    if (s == NULL || c->reply == 0) {
        return c->reply == 0 && c->n_consumed == 0 && (s == NULL ? c->node == 0 : c->node < s->n_nodes);
    }
    return c->node < s->n_nodes && c->reply <= s->n_replies && c->n_consumed <= s->replies[c->reply - 1].n;
}

/* Returns whether the reply has these bytes at `from`. */
static bool goes_on(const reply *r, size_t from, const char *bytes, size_t n)
{
    return n <= r->n - from && memcmp(r->text + from, bytes, n) == 0;
}

/* If the bytes of a token do not continue the reply, they may begin the reply once more. This happens in the prompt of
 * a later turn, because that prompt repeats the replies of earlier turns. */
void sim_cue_follow(const sim_script *s, sim_cue *c, const char *bytes, size_t n)
{
    if (c->reply != 0) {
        const reply *r = &s->replies[c->reply - 1];
        if (goes_on(r, c->n_consumed, bytes, n)) {
            c->n_consumed += (uint32_t)n;
        } else {
            c->n_consumed = goes_on(r, 0, bytes, n) ? (uint32_t)n : 0;
        }
    }
    for (size_t i = 0; i < n; i++) {
        c->node = s->next[c->node][(uint8_t)bytes[i]];
        if (s->ends[c->node] != 0) {
            c->reply = s->ends[c->node];
            c->n_consumed = 0;
        }
    }
}

void sim_cue_break(sim_cue *c)
{
    c->node = 0;
    c->n_consumed = 0;
}

const char *sim_cue_rest(const sim_script *s, const sim_cue *c, size_t *n)
{
    if (s == NULL || c->reply == 0) {
        return NULL;
    }
    const reply *r = &s->replies[c->reply - 1];
    *n = r->n - c->n_consumed;
    return r->text + c->n_consumed;
}
