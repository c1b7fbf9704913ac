/* Tests the two files of a branch: written data are read back unchanged, and any other file is refused. */
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "snapshot_files.h"

enum { ID = 0xabc };

static char directory[FILES_PATH_BYTES];

static int read_session(uint64_t id, branch_file *out, const char **why)
{
    return branch_file_read(directory, id, files_identity, out, why);
}

static int read_state(uint64_t id, state_file *out, const char **why)
{
    return state_file_read(directory, id, files_geometry, UINT64_MAX, out, why);
}

static void write_both(const char *where, uint64_t id)
{
    branch_file session = files_branch(id);
    state_file state = files_state();
    CHECK_INT(branch_file_write(where, files_identity, &session), LLM_OK);
    CHECK_INT(state_file_write(where, id, files_geometry, &state), LLM_OK);
    branch_file_clear(&session);
    state_file_clear(&state);
}

static void test_round_trip(void)
{
    branch_file session = files_branch(ID), session_back;
    state_file state = files_state(), state_back;
    state_facts facts;
    const char *why = "";
    write_both(directory, ID);
    CHECK(!files_exists(directory, ID, "writing") && !files_exists(directory, ID, "writing-state"));
    CHECK_INT(read_session(ID, &session_back, &why), LLM_OK);
    CHECK(files_branches_equal(&session, &session_back));
    CHECK_INT(read_state(ID, &state_back, &why), LLM_OK);
    CHECK(files_states_equal(&state, &state_back));
    CHECK_INT(state_file_look(directory, ID, files_geometry, true, &facts, &why), LLM_OK);
    CHECK(facts.is_there && !facts.is_of_other_geometry && facts.k == FILES_COVERED);
    CHECK_INT(facts.n_bytes, state_file_bytes(&state));
    const state_ends ends = state_file_ends(&state);
    CHECK(memcmp(&facts.ends, &ends, sizeof ends) == 0);
    CHECK_INT(state_ends_within(&ends, FILES_COVERED), FILES_COVERED);
    CHECK_INT(state_ends_within(&ends, FILES_COVERED - 1), 3);
    CHECK_INT(state_ends_within(&ends, 2), 0);
    CHECK(state_matches(facts.k, facts.hash, session.tokens, session.n_tokens));
    branch_file_clear(&session);
    branch_file_clear(&session_back);
    state_file_clear(&state);
    state_file_clear(&state_back);
}

static void test_the_smallest_one(void)
{
    const branch_file s = {.id = ID + 1};
    branch_file back;
    const char *why = "";
    CHECK_INT(branch_file_write(directory, files_identity, &s), LLM_OK);
    CHECK_INT(read_session(ID + 1, &back, &why), LLM_OK);
    CHECK_INT(back.n_tokens, 0);
    branch_file_clear(&back);
}

/* A state belongs to a session if its tokens are the first tokens of the session. The names of the files do not
 * matter. */
static void test_a_state_is_known_by_its_tokens(void)
{
    branch_file s = files_branch(ID);
    const state_file state = {.k = FILES_COVERED, .hash = token_hash_of(0, s.tokens, FILES_COVERED)};
    CHECK(state_matches(state.k, state.hash, s.tokens, s.n_tokens));
    CHECK(state_matches(state.k, state.hash, s.tokens, FILES_COVERED));
    CHECK(!state_matches(state.k, state.hash, s.tokens, FILES_COVERED - 1));
    CHECK(!state_matches(state.k - 1, state.hash, s.tokens, s.n_tokens));
    CHECK(!state_matches(0, token_hash_of(0, s.tokens, 0), s.tokens, s.n_tokens));
    s.tokens[FILES_COVERED - 1]++;
    CHECK(!state_matches(state.k, state.hash, s.tokens, s.n_tokens));
    branch_file_clear(&s);
}

/* Writes the file, and checks that reading fails, returns a reason, and gives no contents. */
static void check_refused(bool is_state, const uint8_t *bytes, size_t n_bytes)
{
    const char *why = "";
    files_write(directory, ID, is_state ? "llmd-state" : "llmd-session", bytes, n_bytes);
    if (is_state) {
        state_file back;
        CHECK_INT(read_state(ID, &back, &why), LLM_VERSION);
        CHECK(back.n_parts == 0);
    } else {
        branch_file back;
        CHECK_INT(read_session(ID, &back, &why), LLM_VERSION);
        CHECK(back.tokens == NULL);
    }
    CHECK(why[0] != '\0');
}

static uint8_t *written(bool is_state, size_t *n_bytes)
{
    write_both(directory, ID);
    uint8_t *bytes = files_read(directory, ID, is_state ? "llmd-state" : "llmd-session", n_bytes);
    if (bytes == NULL) {
        abort();
    }
    return bytes;
}

static void check_every_cut(bool is_state)
{
    size_t n = 0;
    uint8_t *bytes = written(is_state, &n);
    for (size_t length = 0; length < n; length++) {
        check_refused(is_state, bytes, length);
        CHECK_STILL_GOOD();
    }
    bytes[n] = 0;
    check_refused(is_state, bytes, n + 1);
    free(bytes);
}

static void test_every_cut_is_refused(void)
{
    check_every_cut(false);
    check_every_cut(true);
}

static void check_every_flip(bool is_state)
{
    size_t n = 0;
    uint8_t *bytes = written(is_state, &n);
    for (size_t i = 0; i < n; i++) {
        for (unsigned bit = 1; bit < 256; bit <<= 1) {
            bytes[i] = (uint8_t)(bytes[i] ^ bit);
            check_refused(is_state, bytes, n);
            bytes[i] = (uint8_t)(bytes[i] ^ bit);
        }
        CHECK_STILL_GOOD();
    }
    free(bytes);
}

static void test_every_flipped_byte_is_refused(void)
{
    check_every_flip(false);
    check_every_flip(true);
}

static void test_a_file_of_another_model_is_refused(void)
{
    const uint8_t other[16] = {9};
    branch_file back;
    const char *why = "";
    write_both(directory, ID);
    CHECK_INT(branch_file_read(directory, ID, other, &back, &why), LLM_VERSION);
    CHECK(strstr(why, "another model") != NULL);
}

static void test_a_state_of_another_geometry_is_told_apart(void)
{
    const uint8_t other[16] = {9};
    state_facts facts;
    state_file back;
    const char *why = "";
    write_both(directory, ID);
    CHECK_INT(state_file_look(directory, ID, other, true, &facts, &why), LLM_OK);
    CHECK(facts.is_there && facts.is_of_other_geometry);
    CHECK_INT(state_file_read(directory, ID, other, UINT64_MAX, &back, &why), LLM_VERSION);
    CHECK(strstr(why, "memory layout") != NULL);
}

/* Reading allocates no more than the caller allows, whatever size the file claims. */
static void test_a_limit_is_kept(void)
{
    state_file state = files_state(), back;
    const char *why = "";
    write_both(directory, ID);
    const uint64_t n = state_file_bytes(&state);
    CHECK_INT(state_file_read(directory, ID, files_geometry, n - 1, &back, &why), LLM_NO_MEMORY);
    CHECK_INT(back.n_parts, 0);
    CHECK_INT(state_file_read(directory, ID, files_geometry, n, &back, &why), LLM_OK);
    state_file_clear(&back);
    state_file_clear(&state);
}

static void test_a_file_under_another_id_is_refused(void)
{
    size_t n = 0;
    uint8_t *bytes = written(false, &n);
    branch_file back;
    const char *why = "";
    files_write(directory, ID + 9, "llmd-session", bytes, n);
    CHECK_INT(read_session(ID + 9, &back, &why), LLM_VERSION);
    free(bytes);
}

static void test_remove_and_set_aside(void)
{
    branch_file session;
    state_file state;
    state_facts facts;
    const char *why = "";
    write_both(directory, ID);
    for (int i = 0; i < 2; i++) { /* removing a missing file succeeds */
        CHECK_INT(snapshot_remove_branch(directory, ID), LLM_OK);
        CHECK_INT(snapshot_remove_state(directory, ID), LLM_OK);
    }
    CHECK_INT(read_session(ID, &session, &why), LLM_NOT_FOUND);
    CHECK_INT(read_state(ID, &state, &why), LLM_NOT_FOUND);
    CHECK_INT(state_file_look(directory, ID, files_geometry, true, &facts, &why), LLM_OK);
    CHECK(!facts.is_there);
    write_both(directory, ID);
    snapshot_set_branch_aside(directory, ID);
    snapshot_set_state_aside(directory, ID);
    CHECK(files_exists(directory, ID, "refused") && files_exists(directory, ID, "refused-state"));
    CHECK_INT(read_session(ID, &session, &why), LLM_NOT_FOUND);
}

static void test_what_is_no_file(void)
{
    branch_file session;
    state_file state = files_state();
    const char *why = "";
    files_obstruct(directory, ID + 2, "llmd-session");
    files_obstruct(directory, ID + 2, "llmd-state");
    CHECK_INT(read_session(ID + 2, &session, &why), LLM_VERSION);
    session = files_branch(ID + 2);
    CHECK_INT(branch_file_write(directory, files_identity, &session), LLM_IO);
    CHECK_INT(state_file_write(directory, ID + 2, files_geometry, &state), LLM_IO);
    CHECK(!files_exists(directory, ID + 2, "writing") && !files_exists(directory, ID + 2, "writing-state"));
    CHECK_INT(branch_file_write("/nonexistent-directory", files_identity, &session), LLM_IO);
    branch_file_clear(&session);
    state_file_clear(&state);
}

typedef struct found {
    uint32_t n;
    uint64_t ids[8];
} found;

static void remember(void *context, uint64_t id)
{
    found *f = context;
    f->ids[f->n++ % 8] = id;
}

/* Files of interrupted writes are removed. Files that do not belong to llmd stay. */
static void test_scan(void)
{
    char own[FILES_PATH_BYTES];
    files_make_directory(own);
    write_both(own, ID);
    files_write(own, 5, "writing", "half", 4);
    files_write(own, 5, "writing-state", "half", 4);
    files_write(own, 8, "llmd-state", "no session has it", 17);
    files_write(own, 6, "refused", "old", 3);
    files_write(own, 7, "llmd-session.bak", "mine", 4);
    found f = {0};
    CHECK_INT(snapshot_scan(own, remember, &f), LLM_OK);
    CHECK_INT(f.n, 1);
    CHECK_INT(f.ids[0], ID);
    CHECK(!files_exists(own, 5, "writing") && !files_exists(own, 5, "writing-state"));
    CHECK(!files_exists(own, 8, "llmd-state") && files_exists(own, ID, "llmd-state"));
    CHECK(files_exists(own, 6, "refused") && files_exists(own, 7, "llmd-session.bak"));
    CHECK_INT(snapshot_scan("/nonexistent-directory", remember, &f), LLM_IO);
    files_remove_directory(own);
}

int main(void)
{
    files_make_directory(directory);
    RUN(test_round_trip);
    RUN(test_the_smallest_one);
    RUN(test_a_state_is_known_by_its_tokens);
    RUN(test_every_cut_is_refused);
    RUN(test_every_flipped_byte_is_refused);
    RUN(test_a_file_of_another_model_is_refused);
    RUN(test_a_state_of_another_geometry_is_told_apart);
    RUN(test_a_limit_is_kept);
    RUN(test_a_file_under_another_id_is_refused);
    RUN(test_remove_and_set_aside);
    RUN(test_what_is_no_file);
    RUN(test_scan);
    files_remove_directory(directory);
    return CHECK_RESULT();
}
