/* Tests the files of sessions, through the engine: a restart with other options, kills, failing disks, too few
 * entries. */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "check.h"
#include "boundary/session_table_layout.h"
#include "dead_segment.h"
#include "sessions/branch.h"
#include "snapshot_files.h"

enum { LONG = 400, N_MANY = 24, MANY_STATE_KB = 512 };

static char directory[FILES_PATH_BYTES];

static const answer *say(driver *d, const char *name, uint64_t seed)
{
    static int32_t tokens[LONG];
    make_prompt(tokens, LONG, seed);
    const generate_call call = {.session = name, .prompt = tokens, .n_prompt = LONG, .max_tokens = 5};
    return driver_wait(d, driver_generate(d, &call));
}

static driver *open_sim(const char *simulated, uint32_t n_sessions, llm_policy policy)
{
    return driver_open(&(llm_engine_options){.model = simulated,
                                             .n_sessions = n_sessions,
                                             .capacity_policy = policy,
                                             .n_parked_max = 1,
                                             .state_dir = directory});
}

static driver *open_usual(uint32_t n_sessions)
{
    return open_sim("sim:hybrid,length=0", n_sessions, LLM_POLICY_PARK);
}

static bool is_open(const driver *d, const char *name)
{
    return driver_session(d, name).entry != UINT32_MAX;
}

/* Returns all complaints in one text. */
static const char *complaints(driver *d)
{
    static char all[1 << 14];
    char text[512];
    all[0] = '\0';
    while (llm_engine_complaint(d->engine, text, sizeof text) == LLM_OK) {
        strcat(all, text);
        strcat(all, "\n");
    }
    return all;
}

static uint32_t count_files(const char *ending)
{
    char path[FILES_PATH_BYTES];
    files_model_directory(directory, path);
    return files_count(path, ending);
}

/* ---- other options ---- */

/* Saved under another memory layout, with different numbers of entries: the session keeps its tokens, which are
 * prefilled again. */
static void test_another_layout_keeps_the_session(void)
{
    driver *d = open_usual(4);
    CHECK_INT(say(d, "it", 1)->status, LLM_OK);
    CHECK_INT(driver_wait(d, driver_pin(d, 0, "it", true))->status, LLM_OK);
    CHECK_INT(driver_wait(d, driver_command(d, LLM_COMMAND_SAVE, 0, "it", "label"))->status, LLM_OK);
    const uint32_t n = driver_session(d, "it").n_tokens;
    CHECK_INT(driver_close(d), 0);
    d = open_sim("sim:hybrid,length=0,layout=1", 2, LLM_POLICY_PARK);
    CHECK_INT(driver_session(d, "it").n_tokens, n);
    CHECK_INT(driver_session(d, "it").is_pinned, 1);
    CHECK(strstr(complaints(d), "1 session was saved under another memory layout") != NULL);
    CHECK_INT(say(d, "it", 1)->reason, LLM_REASON_TORN);
    const answer *loaded = driver_wait(d, driver_command(d, LLM_COMMAND_LOAD, 0, "other", "label"));
    CHECK_INT(loaded->status, LLM_OK);
    CHECK_INT(loaded->n_tokens, n);
    CHECK_INT(driver_close(d), 0);
}

static void test_more_slots_keep_the_state(void)
{
    driver *d = open_usual(4);
    CHECK_INT(say(d, "it", 1)->status, LLM_OK);
    CHECK_INT(driver_close(d), 0);
    d = open_usual(7);
    CHECK_STR(complaints(d), "");
    CHECK_INT(say(d, "it", 1)->n_reused, LONG);
    CHECK_INT(driver_close(d), 0);
}

/* ---- kills ---- */

/* Leaves a dead segment with a branch of the open session of this name, or of a session that is not open. */
static void leave_segment(const driver *d, const char *name, const int32_t *tokens, uint32_t n, bool is_pinned)
{
    const llm_branch_view view = driver_session(d, name);
    const uint64_t id = view.entry != UINT32_MAX ? view.id : 0;
    dead_segment_leave(d, &(dead_session){name, tokens, n, UINT32_MAX, is_pinned, id}, 1);
}

static driver *open_dead(const char *names)
{
    return driver_open(&(llm_engine_options){.model = "sim:hybrid,length=0",
                                             .n_sessions = 2,
                                             .capacity_policy = LLM_POLICY_PARK,
                                             .dead_table_names = names,
                                             .state_dir = directory});
}

static driver *open_after_kill(void)
{
    return open_dead(dead_segment_name());
}

/* The engine was killed and started again. Then it stopped in order before the session was used. The session is still
 * known, pinned or not. */
static void test_an_orderly_stop_knows_no_less_than_a_kill(void)
{
    for (int pinned = 0; pinned < 2; pinned++) {
        driver *d = open_usual(2);
        int32_t tokens[LONG];
        make_prompt(tokens, LONG, 7);
        leave_segment(d, "it", tokens, LONG, pinned);
        CHECK_INT(driver_close(d), 0);
        d = open_after_kill();
        CHECK_INT(driver_session(d, "it").n_tokens, LONG);
        CHECK_INT(driver_close(d), 0);
        d = open_usual(2);
        CHECK_INT(driver_session(d, "it").n_tokens, LONG);
        CHECK_INT(driver_session(d, "it").is_pinned, pinned);
        CHECK_INT(driver_wait(d, driver_close_session(d, 0, "it"))->status, LLM_OK);
        CHECK_INT(driver_close(d), 0);
    }
}

/* The session is pinned, reset and used again. Then the engine is killed. */
static void test_a_pin_outlives_a_reset_and_a_kill(void)
{
    driver *d = open_usual(2);
    int32_t tokens[LONG];
    make_prompt(tokens, LONG, 7);
    CHECK_INT(say(d, "it", 1)->status, LLM_OK);
    CHECK_INT(driver_wait(d, driver_pin(d, 0, "it", true))->status, LLM_OK);
    CHECK_INT(driver_wait(d, driver_reset(d, 0, "it"))->status, LLM_OK);
    leave_segment(d, "it", tokens, LONG, true);
    CHECK_INT(driver_close(d), 0);
    d = open_after_kill();
    CHECK_INT(driver_session(d, "it").n_tokens, LONG);
    CHECK_INT(driver_session(d, "it").is_pinned, LLM_PIN_ANCHORED);
    CHECK_INT(driver_wait(d, driver_close_session(d, 0, "it"))->status, LLM_OK);
    CHECK_INT(driver_close(d), 0);
}

/* After the pin, the session got another branch. A reset keeps this branch, and pins it. */
static void test_a_reset_keeps_the_pin_of_the_session(void)
{
    driver *d = open_usual(2);
    CHECK_INT(say(d, "it", 1)->status, LLM_OK);
    CHECK_INT(driver_wait(d, driver_pin(d, 0, "it", true))->status, LLM_OK);
    CHECK_INT(say(d, "it", 2)->status, LLM_OK);
    CHECK_INT(driver_wait(d, driver_reset(d, 0, "it"))->status, LLM_OK);
    CHECK_INT(count_files("llmd-session"), 1); /* already now, and not only after the stop */
    CHECK_INT(driver_close(d), 0);
    d = open_usual(2);
    CHECK_INT(driver_session(d, "it").is_pinned, LLM_PIN_ANCHORED);
    CHECK_INT(driver_wait(d, driver_close_session(d, 0, "it"))->status, LLM_OK);
    CHECK_INT(driver_close(d), 0);
}

/* A start was killed before it had adopted the earlier engine's segment. It leaves a segment without sessions, and the
 * earlier one. */
static void test_a_start_that_was_killed_takes_nothing_along(void)
{
    char names[512];
    char opening[128];
    char error[LLM_TEXT_BYTES_MAX];
    session_table *killed = NULL;
    llm_session_table *reader = NULL;
    driver *d = open_usual(2);
    int32_t tokens[LONG];
    make_prompt(tokens, LONG, 7);
    leave_segment(d, "it", tokens, LONG, false);
    CHECK_INT(driver_close(d), 0);
    snprintf(opening, sizeof opening, "%s-killed%s", dead_segment_name(), SESSION_TABLE_OPENING);
    CHECK_INT(session_table_open(opening, 4, 64, "other", "other", &killed, error, sizeof error), LLM_OK);
    snprintf(names, sizeof names, "%s-killed %s-other %s", dead_segment_name(), dead_segment_name(),
             dead_segment_name());
    d = open_dead(names);
    CHECK_INT(driver_session(d, "it").n_tokens, LONG);
    /* the segment was adopted and removed */
    CHECK_INT(llm_session_table_open(dead_segment_name(), -1, &reader), LLM_NOT_FOUND);
    CHECK_INT(driver_wait(d, driver_close_session(d, 0, "it"))->status, LLM_OK);
    CHECK_INT(driver_close(d), 0);
    session_table_close(killed);
}

/* If the disk refuses a session at an orderly stop, the segment stays, as after a kill. */
static void test_what_cannot_be_saved_stays_in_the_segment(void)
{
    char path[FILES_PATH_BYTES];
    char name[128];
    llm_session_table *left = NULL;
    snprintf(name, sizeof name, "%s-unsaved", dead_segment_name());
    driver *d = driver_open(&(llm_engine_options){.model = "sim:hybrid,length=0",
                                                  .table_name = name,
                                                  .n_sessions = 2,
                                                  .capacity_policy = LLM_POLICY_PARK,
                                                  .state_dir = directory});
    CHECK_INT(say(d, "it", 1)->status, LLM_OK);
    const uint32_t n_tokens = driver_session(d, "it").n_tokens;
    files_model_directory(directory, path);
    files_remove_directory(path);
    CHECK_INT(driver_close(d), 0);
    CHECK_INT(llm_session_table_open(name, -1, &left), LLM_OK);
    llm_branch_view view;
    bool is_there = false;
    for (uint32_t entry = 0; llm_session_table_entry(left, entry, &view) != LLM_INVALID && entry < 8; entry++) {
        is_there = is_there || (strcmp(view.name, "it") == 0 && view.n_tokens == n_tokens);
    }
    CHECK(is_there);
    llm_session_table_close(left);
    shm_unlink(name);
}

/* The file has a state of fewer tokens than the segment. Both are used. */
static void test_longer_tokens_keep_the_older_state(void)
{
    driver *d = open_usual(2);
    int32_t tokens[1024];
    const uint32_t n = driver_tokens(d, say(d, "it", 1)->entry, tokens, 1024);
    make_prompt(tokens + n, 100, 3);
    leave_segment(d, "it", tokens, n + 100, false);
    CHECK_INT(driver_close(d), 0);
    d = open_after_kill();
    CHECK_INT(driver_session(d, "it").n_tokens, n + 100);
    CHECK_INT(driver_close(d), 0); /* and the same again through the files */
    d = open_usual(2);
    CHECK_INT(driver_session(d, "it").n_tokens, n + 100);
    const generate_call call = {.session = "it", .prompt = tokens, .n_prompt = n + 100, .max_tokens = 3};
    const answer *a = driver_wait(d, driver_generate(d, &call));
    CHECK_INT(a->n_reused, n);
    CHECK_INT(a->reason, LLM_REASON_RESTORED);
    driver *reference = driver_open_model("sim:hybrid,length=0");
    CHECK(driver_equals_cold(reference, &call, a));
    CHECK_INT(driver_close(reference), 0);
    CHECK_INT(driver_close(d), 0);
}

/* ---- disks that fail ---- */

typedef struct held_file {
    const char *ending;
    uint64_t id;
    uint8_t *bytes;
    size_t n;
} held_file;

static held_file hold(const char *path, const char *ending)
{
    held_file file = {.ending = ending, .id = files_any(path, ending)};
    file.bytes = files_read(path, file.id, ending, &file.n);
    return file;
}

static void test_a_pin_that_cannot_be_written_is_none(void)
{
    char path[FILES_PATH_BYTES];
    driver *d = open_usual(2);
    CHECK_INT(say(d, "it", 1)->status, LLM_OK);
    files_model_directory(directory, path);
    files_remove_directory(path);
    CHECK_INT(driver_wait(d, driver_pin(d, 0, "it", true))->status, LLM_IO);
    CHECK_INT(driver_session(d, "it").is_pinned, 0);
    CHECK(strstr(complaints(d), "cannot be written") != NULL);
    CHECK_INT(mkdir(path, 0700), 0);
    CHECK_INT(driver_wait(d, driver_pin(d, 0, "it", true))->status, LLM_OK);
    CHECK_INT(driver_session(d, "it").is_pinned, 1);
    CHECK_INT(count_files("llmd-session"), 1); /* already now, and not only after the stop */
    files_remove_directory(path);
    CHECK_INT(driver_wait(d, driver_command(d, LLM_COMMAND_RENAME, 0, "it", "new"))->status, LLM_IO);
    CHECK(is_open(d, "it") && !is_open(d, "new"));
    CHECK_INT(driver_wait(d, driver_pin(d, 0, "it", false))->status, LLM_IO);
    CHECK_INT(driver_session(d, "it").is_pinned, 1);
    CHECK_INT(mkdir(path, 0700), 0);
    CHECK_INT(driver_close(d), 0);
}

static void test_a_close_that_cannot_be_written_is_told(void)
{
    char path[FILES_PATH_BYTES];
    driver *d = open_usual(2);
    CHECK_INT(say(d, "it", 1)->status, LLM_OK);
    CHECK_INT(driver_wait(d, driver_pin(d, 0, "it", true))->status, LLM_OK);
    files_model_directory(directory, path);
    files_remove_directory(path);
    CHECK_INT(driver_wait(d, driver_close_session(d, 0, "it"))->status, LLM_IO);
    CHECK(!is_open(d, "it"));
    CHECK_INT(mkdir(path, 0700), 0);
    CHECK_INT(driver_close(d), 0);
}

/* Two changes fail, one after the other. Then the session is as before the first change. While another session's step
 * runs, both commands arrive. */
static void test_a_second_change_waits_for_the_first(void)
{
    char path[FILES_PATH_BYTES];
    int32_t tokens[LONG];
    driver *d = open_sim("sim:hybrid,length=0,step_us=100000", 2, LLM_POLICY_PARK);
    CHECK_INT(say(d, "it", 1)->status, LLM_OK);
    CHECK_INT(driver_wait(d, driver_pin(d, 0, "it", true))->status, LLM_OK);
    CHECK_INT(driver_wait(d, driver_pin(d, 0, "it", false))->status, LLM_OK);
    files_model_directory(directory, path);
    const held_file file = hold(path, "llmd-session");
    files_obstruct(path, file.id, "writing");
    make_prompt(tokens, LONG, 9);
    driver_wait_started(d, driver_generate(d, &(generate_call){.prompt = tokens, .n_prompt = LONG, .max_tokens = 2}));
    const uint64_t first = driver_pin(d, 0, "it", true);
    const uint64_t second = driver_pin(d, 0, "it", false);
    CHECK_INT(driver_wait(d, first)->status, LLM_IO);
    CHECK_INT(driver_wait(d, second)->status, LLM_IO);
    CHECK_INT(driver_session(d, "it").is_pinned, LLM_PIN_NONE);
    const uint64_t renamed = driver_command(d, LLM_COMMAND_RENAME, 0, "it", "other");
    const uint64_t pinned = driver_pin(d, 0, "other", true);
    CHECK_INT(driver_wait(d, renamed)->status, LLM_IO);
    CHECK_INT(driver_wait(d, pinned)->status, LLM_NOT_FOUND);
    CHECK(is_open(d, "it") && !is_open(d, "other"));
    free(file.bytes);
    driver_wait_all(d);
    CHECK_INT(driver_close(d), 0);
}

/* A branch that was opened during the failed pin is not pinned either. */
static void test_a_pin_that_failed_is_none_of_a_later_branch(void)
{
    char path[FILES_PATH_BYTES];
    int32_t tokens[LONG];
    driver *d = open_usual(4);
    CHECK_INT(say(d, "it", 1)->status, LLM_OK);
    CHECK_INT(driver_wait(d, driver_pin(d, 0, "it", true))->status, LLM_OK);
    CHECK_INT(driver_wait(d, driver_pin(d, 0, "it", false))->status, LLM_OK);
    files_model_directory(directory, path);
    const held_file file = hold(path, "llmd-session");
    files_obstruct(path, file.id, "writing");
    const uint64_t pin = driver_pin(d, 0, "it", true);
    make_prompt(tokens, LONG, 2);
    const uint64_t other =
        driver_generate(d, &(generate_call){.session = "it", .prompt = tokens, .n_prompt = LONG, .max_tokens = 5});
    CHECK_INT(driver_wait(d, pin)->status, LLM_IO);
    CHECK_INT(driver_wait(d, other)->status, LLM_OK);
    llm_branch_view view;
    for (uint32_t entry = 0; entry < 4; entry++) {
        CHECK(llm_session_table_entry(d->session_table, entry, &view) != LLM_OK || view.is_pinned == LLM_PIN_NONE);
    }
    free(file.bytes);
    CHECK_INT(driver_close(d), 0);
}

/* Removes the branch file, and returns its contents for give_back. Puts a directory in its place, so that removing it
 * fails. */
static held_file take_away(const char *path)
{
    const held_file file = hold(path, "llmd-session");
    char name[2 * FILES_PATH_BYTES];
    snprintf(name, sizeof name, "%s/%016llx.llmd-session", path, (unsigned long long)file.id);
    if (unlink(name) != 0) {
        abort();
    }
    files_obstruct(path, file.id, file.ending); /* unlink cannot remove a directory */
    return file;
}

static void give_back(const char *path, const held_file *file)
{
    char name[2 * FILES_PATH_BYTES];
    snprintf(name, sizeof name, "%s/%016llx.llmd-session", path, (unsigned long long)file->id);
    files_remove_directory(name);
    files_write(path, file->id, file->ending, file->bytes, file->n);
}

/* A session is not closed while its file exists. Closing it again tries to remove the file again. */
static void test_a_removal_that_was_refused_is_tried_again(void)
{
    char path[FILES_PATH_BYTES];
    for (int is_asked = 0; is_asked < 2; is_asked++) {
        driver *d = open_usual(2);
        CHECK_INT(say(d, "it", 1)->status, LLM_OK);
        CHECK_INT(driver_wait(d, driver_pin(d, 0, "it", true))->status, LLM_OK);
        files_model_directory(directory, path);
        const held_file file = take_away(path);
        CHECK_INT(driver_wait(d, driver_close_session(d, 0, "it"))->status, LLM_IO);
        CHECK_INT(driver_wait(d, driver_close_session(d, 0, "it"))->status, LLM_IO);
        CHECK_INT(driver_wait(d, driver_close_session(d, 7, "it"))->status, LLM_NOT_FOUND);
        give_back(path, &file);
        if (is_asked) {
            CHECK_INT(driver_wait(d, driver_close_session(d, 0, "it"))->status, LLM_OK);
            CHECK_INT(driver_wait(d, driver_close_session(d, 0, "it"))->status, LLM_NOT_FOUND);
            CHECK_INT(count_files("llmd-session"), 0);
        }
        CHECK_INT(driver_close(d), 0); /* an orderly stop tries again, too */
        CHECK_INT(count_files("llmd-session"), 0);
        free(file.bytes);
    }
}

/* The session continues after the failed reset. Another reset or an orderly stop tries to remove the old file again. */
static void test_a_reset_that_was_refused_is_tried_again(void)
{
    char path[FILES_PATH_BYTES];
    for (int is_asked = 0; is_asked < 2; is_asked++) {
        driver *d = open_usual(2);
        CHECK_INT(say(d, "it", 1)->status, LLM_OK);
        CHECK_INT(driver_wait(d, driver_pin(d, 0, "it", true))->status, LLM_OK);
        CHECK_INT(driver_wait(d, driver_pin(d, 0, "it", false))->status, LLM_OK);
        files_model_directory(directory, path);
        const held_file file = take_away(path);
        CHECK_INT(driver_wait(d, driver_reset(d, 0, "it"))->status, LLM_IO);
        give_back(path, &file);
        if (is_asked) {
            CHECK_INT(driver_wait(d, driver_reset(d, 0, "it"))->status, LLM_OK);
            CHECK_INT(count_files("llmd-session"), 0);
        }
        CHECK_INT(driver_close(d), 0);
        CHECK_INT(count_files("llmd-session"), 0);
        free(file.bytes);
    }
}

/* When the reply comes, the files are written or removed. */
static void test_answers_come_when_the_files_are_there_or_gone(void)
{
    driver *d = open_usual(2);
    CHECK_INT(say(d, "it", 1)->status, LLM_OK);
    CHECK_INT(driver_wait(d, driver_pin(d, 0, "it", true))->status, LLM_OK);
    CHECK_INT(count_files("llmd-session"), 1);
    CHECK_INT(driver_wait(d, driver_reset(d, 0, "it"))->status, LLM_OK);
    CHECK_INT(count_files("llmd-session"), 1); /* the session is pinned, so an empty file stays */
    CHECK_INT(driver_close(d), 0);
    d = open_usual(2);
    CHECK(is_open(d, "it") && driver_session(d, "it").n_tokens == 0 && driver_session(d, "it").is_pinned == 1);
    CHECK_INT(say(d, "it", 1)->status, LLM_OK);
    CHECK_INT(driver_wait(d, driver_pin(d, 0, "it", true))->status, LLM_OK);
    CHECK_INT(driver_wait(d, driver_close_session(d, 0, "it"))->status, LLM_OK);
    CHECK_INT(count_files("llmd-session"), 0);
    CHECK_INT(driver_close(d), 0);
    CHECK_INT(count_files("llmd-session") + count_files("llmd-state"), 0);
}

/* ---- damage ---- */

/* Writes the file shortened, or with a few changed bytes. */
static void put_damaged(const char *path, const held_file *file, random_source *r)
{
    uint8_t *bytes = malloc(file->n + 1);
    size_t n = file->n;
    memcpy(bytes, file->bytes, n);
    if (random_below(r, 2) == 0) {
        n = random_below(r, (uint32_t)n);
    }
    for (uint32_t i = random_below(r, 4); n > 0 && i > 0; i--) {
        bytes[random_below(r, (uint32_t)n)] ^= (uint8_t)(1 + random_below(r, 255));
    }
    files_write(path, file->id, file->ending, bytes, n);
    free(bytes);
}

static void put(const char *path, const held_file *file)
{
    files_write(path, file->id, file->ending, file->bytes, file->n);
}

/* One conversation with both files of an orderly stop. */
typedef struct talk {
    int32_t tokens[1024];
    uint32_t n;      /* tokens that the session has */
    uint32_t n_next; /* tokens with those of a next prompt */
    held_file files[2];
} talk;

/* Makes a conversation whose prompt depends on `seed`. Keeps copies of its files. */
static void hold_talk(talk *t, const char *path, uint64_t seed, uint32_t n_prompt)
{
    driver *d = open_usual(2);
    make_prompt(t->tokens, n_prompt, seed);
    const generate_call call = {.session = "it", .prompt = t->tokens, .n_prompt = n_prompt, .max_tokens = 5};
    driver_wait(d, driver_reset(d, 0, "it"));
    t->n = driver_tokens(d, driver_wait(d, driver_generate(d, &call))->entry, t->tokens, 1024);
    driver_close(d);
    t->files[0] = hold(path, "llmd-session");
    t->files[1] = hold(path, "llmd-state");
    make_prompt(t->tokens + t->n, 60, seed + 1);
    t->n_next = t->n + 60;
}

/* Either file is damaged, or the two files belong to different conversations. What the engine adopts is right, or is
 * set aside. The next answers are those of a cold start. */
static void test_no_damage_gives_a_wrong_answer(void)
{
    enum { ROUNDS = 80 };
    static talk talks[2];
    char path[FILES_PATH_BYTES];
    random_source r = {.state = 5};
    int n_reused = 0;
    CHECK_INT(driver_close(open_usual(2)), 0);
    files_model_directory(directory, path);
    hold_talk(&talks[0], path, 1, 300);
    hold_talk(&talks[1], path, 7, 350);
    CHECK(talks[0].files[0].id == talks[1].files[0].id && talks[0].files[1].id == talks[1].files[1].id);
    driver *reference = driver_open_model("sim:hybrid,length=0");
    for (int round = 0; round < ROUNDS; round++) {
        const held_file *small = &talks[random_below(&r, 2)].files[0];
        const held_file *large = &talks[random_below(&r, 2)].files[1];
        put(path, small);
        put(path, large);
        if (round % 2 != 0) { /* otherwise, only the files of the conversations are mixed */
            put_damaged(path, random_below(&r, 2) == 0 ? small : large, &r);
        }
        driver *d = open_usual(2);
        const llm_branch_view view = driver_session(d, "it");
        CHECK(view.entry == UINT32_MAX || view.n_tokens == talks[0].n || view.n_tokens == talks[1].n);
        for (int i = 0; i < 2; i++) {
            const generate_call call = {
                .session = "it", .prompt = talks[i].tokens, .n_prompt = talks[i].n_next, .max_tokens = 6};
            const answer *a = driver_wait(d, driver_generate(d, &call));
            CHECK(driver_equals_cold(reference, &call, a));
            n_reused += a->n_reused > 0;
        }
        driver_wait(d, driver_close_session(d, 0, "it"));
        CHECK_INT(driver_close(d), 0);
    }
    CHECK(n_reused > 0 && n_reused < ROUNDS);
    for (int i = 0; i < 2; i++) {
        free(talks[i].files[0].bytes);
        free(talks[i].files[1].bytes);
    }
    CHECK_INT(driver_close(reference), 0);
}

/* ---- another configuration ---- */

static void leave_four(llm_policy policy)
{
    const char *names[] = {"pinned", "b", "c", "d"};
    driver *d = open_sim("sim:hybrid,length=0", 4, policy);
    for (uint64_t i = 0; i < 4; i++) {
        say(d, names[i], i);
        const uint64_t used_ms = driver_session(d, names[i]).used_ms;
        while (clock_ms() == used_ms) { /* so that the next time stamp differs */
        }
    }
    driver_wait(d, driver_pin(d, 0, "pinned", true));
    driver_close(d);
}

static void close_names(driver *d)
{
    const char *names[] = {"pinned", "b", "c", "d"};
    for (int i = 0; i < 4; i++) {
        driver_wait(d, driver_close_session(d, 0, names[i]));
    }
}

/* Under every policy, a closed session is gone for good. */
static void test_a_closed_session_never_comes_back(void)
{
    for (llm_policy policy = LLM_POLICY_REFUSE; policy < LLM_POLICY_N; policy++) {
        leave_four(policy);
        driver *d = open_sim("sim:hybrid,length=0", 1, policy);
        close_names(d);
        CHECK_INT(driver_wait(d, driver_close_session(d, 0, "b"))->status, LLM_NOT_FOUND);
        CHECK_INT(driver_close(d), 0);
        d = open_sim("sim:hybrid,length=0", 4, policy);
        CHECK(!is_open(d, "pinned") && !is_open(d, "b") && !is_open(d, "c") && !is_open(d, "d"));
        CHECK_INT(driver_close(d), 0);
    }
}

static void test_a_shorter_context_keeps_the_session(void)
{
    driver *d = open_usual(2);
    CHECK_INT(say(d, "it", 1)->status, LLM_OK);
    const uint32_t n = driver_session(d, "it").n_tokens;
    CHECK_INT(driver_close(d), 0);
    const llm_engine_options shorter = {.model = "sim:hybrid,length=0",
                                        .n_sessions = 2,
                                        .n_ctx = 256,
                                        .capacity_policy = LLM_POLICY_PARK,
                                        .state_dir = directory};
    d = driver_open(&shorter);
    CHECK(!is_open(d, "it"));
    CHECK(strstr(complaints(d), "more tokens than --ctx-size holds") != NULL);
    CHECK_INT(driver_close(d), 0);
    d = open_usual(2);
    CHECK_INT(driver_session(d, "it").n_tokens, n);
    CHECK_INT(driver_wait(d, driver_close_session(d, 0, "it"))->status, LLM_OK);
    CHECK_INT(driver_close(d), 0);
}

/* ---- memory ---- */

static uint64_t ask_many(driver *d, uint64_t i, bool is_long)
{
    const char name[] = {(char)('a' + i), '\0'};
    int32_t tokens[LONG];
    make_prompt(tokens, LONG, i);
    const generate_call call = {.session = name, .prompt = tokens, .n_prompt = LONG, .max_tokens = is_long ? 0 : 5};
    return driver_generate(d, &call);
}

/* Two slots are busy, and many sessions on the disk get requests. A state is not loaded before its session can get a
 * slot. */
static void test_what_cannot_get_a_slot_is_not_read(void)
{
    char simulated[96];
    snprintf(simulated, sizeof simulated, "sim:dense,length=0,ctx=16384,step_us=2000,state_kb=%d", MANY_STATE_KB);
    const llm_engine_options options = {.model = simulated,
                                        .n_sessions = 2,
                                        .n_ctx = 16384,
                                        .capacity_policy = LLM_POLICY_PARK,
                                        .n_parked_max = N_MANY,
                                        .parked_bytes_max = 1,
                                        .state_dir = directory};
    driver *d = driver_open(&options);
    for (uint64_t i = 0; i < N_MANY; i++) {
        CHECK_INT(driver_wait(d, ask_many(d, i, false))->status, LLM_OK);
    }
    CHECK_INT(driver_close(d), 0);
    d = driver_open(&options);
    uint64_t requests[N_MANY];
    for (uint64_t i = 0; i < N_MANY; i++) {
        requests[i] = ask_many(d, i, i < 2);
        if (i < 2) {
            driver_wait_text(d, requests[i]);
        }
    }
    driver_fence(d);
    for (int i = 0; i < 2; i++) { /* the reply about a label comes after all earlier disk jobs */
        driver_wait(d, driver_unsave(d, 0, "nothing"));
        driver_loop(d);
    }
    CHECK(!driver_answer(d, requests[0])->is_over && !driver_answer(d, requests[1])->is_over);
    CHECK_INT(driver_counter(d, LLM_COUNTER_PARKED_MEMORY_BYTES) + driver_counter(d, LLM_COUNTER_IN_FLIGHT_BYTES), 0);
    driver_cancel(d, requests[0]);
    driver_cancel(d, requests[1]);
    for (uint64_t i = 2; i < N_MANY; i++) {
        CHECK_INT(driver_wait(d, requests[i])->n_reused, LONG - 1);
    }
    CHECK_INT(driver_close(d), 0);
}

/* ---- labels ---- */

/* A session can be saved whose state is on the disk or lost, because its tokens are known. */
static void test_labels(void)
{
    driver *d = open_usual(2);
    CHECK_INT(say(d, "it", 1)->status, LLM_OK);
    CHECK_INT(driver_close(d), 0);
    d = open_usual(2);
    CHECK_INT(driver_wait(d, driver_command(d, LLM_COMMAND_SAVE, 0, "it", "label"))->status, LLM_OK);
    llm_saved found[2];
    CHECK_INT(llm_engine_saved(d->engine, found, 2), 1);
    CHECK_STR(found[0].label, "label");
    CHECK(found[0].n_bytes > 0); /* the label's file is a hard link to the state on the disk */
    CHECK_INT(driver_wait(d, driver_close_session(d, 0, "it"))->status, LLM_OK);
    CHECK_INT(driver_wait(d, driver_command(d, LLM_COMMAND_LOAD, 0, "back", "label"))->status, LLM_OK);
    CHECK_INT(say(d, "back", 1)->n_reused, LONG);
    CHECK_INT(driver_wait(d, driver_unsave(d, 7, "label"))->status, LLM_NOT_FOUND);
    CHECK_INT(driver_wait(d, driver_unsave(d, 0, "label"))->status, LLM_OK);
    CHECK_INT(llm_engine_saved(d->engine, found, 2), 0);
    CHECK_INT(driver_wait(d, driver_close_session(d, 0, "back"))->status, LLM_OK);
    CHECK_INT(driver_close(d), 0);
}

/* The reply has the number of tokens that were saved, not of those that the session has when the file is written. */
static void test_a_save_tells_what_was_saved(void)
{
    driver *d = open_usual(2);
    CHECK_INT(say(d, "it", 1)->status, LLM_OK);
    const uint64_t saved = driver_command(d, LLM_COMMAND_SAVE, 0, "it", "label");
    const uint64_t closed = driver_close_session(d, 0, "it");
    CHECK_INT(driver_wait(d, saved)->status, LLM_OK);
    CHECK(driver_answer(d, saved)->n_tokens >= LONG);
    CHECK_INT(driver_wait(d, closed)->status, LLM_OK);
    CHECK_INT(driver_close(d), 0);
}

/* Simulates a power failure: continues with a copy of the files as they are now. */
static driver *open_after_power_failure(driver *d)
{
    char command[4 * FILES_PATH_BYTES];
    snprintf(command, sizeof command, "cp -r %s %s.copy", directory, directory);
    if (system(command) != 0) {
        abort();
    }
    driver_close(d);
    snprintf(command, sizeof command, "rm -rf %s && mv %s.copy %s", directory, directory, directory);
    if (system(command) != 0) {
        abort();
    }
    return open_usual(4);
}

/* A session stays pinned if another conversation is loaded into it. When the reply comes, the replaced files are
 * gone. */
static void test_a_load_keeps_the_pin(void)
{
    driver *d = open_usual(4);
    CHECK_INT(say(d, "it", 1)->status, LLM_OK);
    CHECK_INT(driver_wait(d, driver_command(d, LLM_COMMAND_SAVE, 0, "it", "label"))->status, LLM_OK);
    CHECK_INT(driver_wait(d, driver_close_session(d, 0, "it"))->status, LLM_OK);
    CHECK_INT(say(d, "it", 2)->status, LLM_OK);
    CHECK_INT(driver_wait(d, driver_pin(d, 0, "it", true))->status, LLM_OK);
    CHECK_INT(say(d, "it", 3)->status, LLM_OK);
    CHECK_INT(driver_wait(d, driver_command(d, LLM_COMMAND_LOAD, 0, "it", "label"))->status, LLM_OK);
    CHECK_INT(driver_session(d, "it").is_pinned, LLM_PIN_ANCHORED);
    d = open_after_power_failure(d);
    CHECK_INT(driver_session(d, "it").is_pinned, LLM_PIN_ANCHORED);
    CHECK_INT(say(d, "it", 1)->reason, LLM_REASON_TORN); /* only its tokens were written */
    CHECK_INT(driver_counter(d, LLM_COUNTER_SESSIONS_OPENED), 1);
    CHECK_INT(driver_close(d), 0);
}

/* A fork replaces another session, pinned or not. When the reply comes, that session is gone for good. */
static void test_what_a_fork_replaced_does_not_come_back(void)
{
    char path[FILES_PATH_BYTES];
    driver *d = open_usual(4);
    CHECK_INT(say(d, "it", 1)->status, LLM_OK);
    CHECK_INT(say(d, "other", 2)->status, LLM_OK);
    CHECK_INT(driver_wait(d, driver_pin(d, 0, "other", true))->status, LLM_OK);
    files_model_directory(directory, path);
    const held_file file = take_away(path);
    CHECK_INT(driver_wait(d, driver_fork(d, 0, "it", "other", UINT32_MAX))->status, LLM_IO);
    give_back(path, &file);
    CHECK_INT(driver_wait(d, driver_fork(d, 0, "it", "other", UINT32_MAX))->status, LLM_OK);
    CHECK_INT(count_files("llmd-session"), 0);
    CHECK_INT(driver_session(d, "other").is_pinned, LLM_PIN_NONE);
    CHECK_INT(say(d, "other", 1)->n_reused, LONG);
    CHECK_INT(driver_close(d), 0);
    free(file.bytes);
}

int main(void)
{
    RUN_FILES(test_another_layout_keeps_the_session);
    RUN_FILES(test_more_slots_keep_the_state);
    RUN_FILES(test_an_orderly_stop_knows_no_less_than_a_kill);
    RUN_FILES(test_a_pin_outlives_a_reset_and_a_kill);
    RUN_FILES(test_a_reset_keeps_the_pin_of_the_session);
    RUN_FILES(test_a_start_that_was_killed_takes_nothing_along);
    RUN_FILES(test_what_cannot_be_saved_stays_in_the_segment);
    RUN_FILES(test_longer_tokens_keep_the_older_state);
    RUN_FILES(test_a_pin_that_cannot_be_written_is_none);
    RUN_FILES(test_a_close_that_cannot_be_written_is_told);
    RUN_FILES(test_a_second_change_waits_for_the_first);
    RUN_FILES(test_a_pin_that_failed_is_none_of_a_later_branch);
    RUN_FILES(test_a_removal_that_was_refused_is_tried_again);
    RUN_FILES(test_a_reset_that_was_refused_is_tried_again);
    RUN_FILES(test_answers_come_when_the_files_are_there_or_gone);
    RUN_FILES(test_no_damage_gives_a_wrong_answer);
    RUN_FILES(test_a_closed_session_never_comes_back);
    RUN_FILES(test_a_shorter_context_keeps_the_session);
    RUN_FILES(test_what_cannot_get_a_slot_is_not_read);
    RUN_FILES(test_labels);
    RUN_FILES(test_a_save_tells_what_was_saved);
    RUN_FILES(test_a_load_keeps_the_pin);
    RUN_FILES(test_what_a_fork_replaced_does_not_come_back);
    return CHECK_RESULT();
}
