/* Tests more sessions than slots, through the engine: forks, names, saved sessions, restarts. */
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#include "check.h"
#include "dead_segment.h"

enum { LONG = 400, N_BOUNDARIES = 300 };

static char *new_directory(void)
{
    static char path[64];
    strcpy(path, "/tmp/test_branch_table.XXXXXX");
    if (mkdtemp(path) == NULL) {
        abort();
    }
    return path;
}

static void remove_directory(const char *path)
{
    char command[96];
    snprintf(command, sizeof command, "rm -rf %s", path);
    if (system(command) != 0) {
        abort();
    }
}

static int32_t *prompt_of(uint64_t seed)
{
    static int32_t tokens[LONG];
    make_prompt(tokens, LONG, seed);
    return tokens;
}

static generate_call call_of(const char *session, uint64_t seed)
{
    return (generate_call){.session = session, .prompt = prompt_of(seed), .n_prompt = LONG, .max_tokens = 5};
}

static const answer *say(driver *d, const char *session, uint64_t seed)
{
    const generate_call call = call_of(session, seed);
    return driver_wait(d, driver_generate(d, &call));
}

static driver *open_with(const char *directory, uint32_t n_sessions, llm_policy policy)
{
    return driver_open(&(llm_engine_options){
        .model = "sim:hybrid,length=0", .n_sessions = n_sessions, .capacity_policy = policy, .state_dir = directory});
}

/* More boundaries than are used, none of them at the end of the prompt. */
static void test_many_boundaries(void)
{
    driver *d = driver_open_model("sim:hybrid");
    int32_t boundaries[N_BOUNDARIES];
    for (int32_t i = 0; i < N_BOUNDARIES; i++) {
        boundaries[i] = 40 + i;
    }
    generate_call call = call_of("it", 1);
    call.boundaries = boundaries;
    call.n_boundaries = N_BOUNDARIES;
    CHECK_INT(driver_wait(d, driver_generate(d, &call))->status, LLM_OK);
    CHECK_INT(driver_close(d), 0);
}

/* A checkpoint in the middle of a prompt has no logits. If another prompt ends there, a checkpoint with logits replaces
 * it, if the budget has room for the logits. */
static void test_a_checkpoint_stays_if_a_larger_one_does_not_fit(void)
{
    enum { SHARED = 300, STATE_KB = 64, BUDGET_BYTES = 2 * ((STATE_KB << 10) + 3000) };
    driver *d = driver_open(
        &(llm_engine_options){.model = "sim:recurrent,length=0,state_kb=64", .checkpoint_bytes_max = BUDGET_BYTES});
    int32_t boundary = SHARED;
    generate_call call = call_of("a", 1);
    call.boundaries = &boundary;
    call.n_boundaries = 1;
    call.n_prompt = SHARED + 1;
    CHECK_INT(driver_wait(d, driver_generate(d, &call))->status, LLM_OK);
    const uint64_t n_bytes = driver_counter(d, LLM_COUNTER_CHECKPOINT_BYTES);
    call = call_of("b", 1);
    call.n_prompt = SHARED;
    CHECK_INT(driver_wait(d, driver_generate(d, &call))->status, LLM_OK);
    CHECK_INT(driver_counter(d, LLM_COUNTER_CHECKPOINT_BYTES), n_bytes);
    CHECK_INT(driver_close(d), 0);
}

/* Makes a prompt of LONG tokens. The first n_common are the same in all such prompts. The others depend on `seed`. */
static void make_parting(int32_t *prompt, uint32_t n_common, uint32_t seed)
{
    make_prompt(prompt, LONG, 7);
    make_prompt(prompt + n_common, LONG - n_common, seed);
}

/* Two conversations with the same long system prompt take turns. Neither takes the other's branch. */
static void check_that_both_stay_warm(const char *session)
{
    enum { HEAD = 300 };
    driver *d = driver_open(&(llm_engine_options){.model = "sim:hybrid,length=0", .n_scratch = 3});
    int32_t talks[2][LONG];
    uint64_t requests[4];
    for (uint32_t i = 0; i < 4; i++) {
        make_parting(talks[i % 2], HEAD, 8 + i % 2);
        generate_call call = call_of(session, 0);
        call.prompt = talks[i % 2];
        call.n_prompt = i < 2 ? LONG - 30 : LONG;
        call.n_head = HEAD;
        call.max_tokens = 1;
        requests[i] = driver_generate(d, &call);
        driver_wait(d, requests[i]);
    }
    const answer *again = driver_answer(d, requests[2]);
    CHECK_INT(again->reason, LLM_REASON_EXACT_PREFIX);
    CHECK_INT(again->n_reused, LONG - 30);
    CHECK_INT(driver_answer(d, requests[3])->reason, LLM_REASON_EXACT_PREFIX);
    CHECK_INT(driver_close(d), 0);
}

static void test_a_shared_head_steals_no_conversation(void)
{
    check_that_both_stay_warm("it");
    check_that_both_stay_warm(NULL);
}

/* A client rewrites its prompt after the first COMMON tokens in each turn. Another client takes turns with it. Neither
 * has a session name. */
static void check_rewritten(const char *name, uint32_t n_first, uint32_t n_second)
{
    enum { HEAD = 100, COMMON = 200 };
    driver *d = driver_open(&(llm_engine_options){.model = name, .n_scratch = 2});
    uint32_t n_reused[3];
    for (uint32_t i = 0; i < 3; i++) {
        int32_t rewritten[LONG];
        make_parting(rewritten, COMMON, 8 + i);
        generate_call call = call_of(NULL, 0);
        call.prompt = rewritten;
        call.n_head = HEAD;
        n_reused[i] = driver_wait(d, driver_generate(d, &call))->n_reused;
        CHECK_INT(say(d, NULL, 20)->status, LLM_OK);
    }
    CHECK_INT(n_reused[1], n_first);
    CHECK_INT(n_reused[2], n_second);
    CHECK_INT(driver_close(d), 0);
}

static void test_a_rewritten_prompt_takes_the_place_of_the_one_before(void)
{
    check_rewritten("sim:dense,length=0", 200, 200);
    check_rewritten("sim:hybrid,length=0", 100, 200); /* the second time, the engine knows where the prompts diverge */
}

/* If the head is not known, and all prompts begin with the same one or two tokens, a prompt does not continue another
 * conversation's branch. */
static void test_a_common_beginning_of_a_few_tokens_is_no_conversation(void)
{
    for (uint32_t n_common = 1; n_common <= 101; n_common += 100) {
        driver *d = driver_open(&(llm_engine_options){.model = "sim:dense,length=0", .n_scratch = 1});
        const answer *a = NULL;
        for (uint32_t i = 0; i < 2; i++) {
            int32_t prompt[LONG];
            make_parting(prompt, n_common, 8 + i);
            generate_call call = call_of(NULL, 0);
            call.prompt = prompt;
            a = driver_wait(d, driver_generate(d, &call));
        }
        CHECK_INT(a->n_reused, n_common == 1 ? 0 : n_common);
        CHECK_INT(a->reason, n_common == 1 ? LLM_REASON_NEW : LLM_REASON_REWIND);
        CHECK_INT(driver_close(d), 0);
    }
}

/* Without a head, a prompt's beginning is private. No checkpoint of a whole prefix is kept for other sessions. */
static void test_without_a_head_no_prefix_is_kept(void)
{
    for (uint32_t with_head = 0; with_head < 2; with_head++) {
        driver *d = driver_open_model("sim:dense");
        const int32_t boundaries[] = {100, 300};
        generate_call call = call_of("it", 1);
        call.boundaries = boundaries;
        call.n_boundaries = 2;
        call.n_head = with_head * 100;
        CHECK_INT(driver_wait(d, driver_generate(d, &call))->status, LLM_OK);
        driver_fence(d);
        CHECK_INT(driver_counter(d, LLM_COUNTER_CHECKPOINTS), with_head);
        CHECK_INT(driver_close(d), 0);
    }
}

/* A fork gives a parked state a slot. Later the state is parked again, and dropped because memory is short. The
 * session's tokens then prove nothing about a state. */
static void test_a_dropped_state_is_never_taken_for_a_loaded_one(void)
{
    driver *d = driver_open(&(llm_engine_options){.model = "sim:hybrid,length=0",
                                                  .n_sessions = 2,
                                                  .capacity_policy = LLM_POLICY_PARK,
                                                  .parked_bytes_max = 1 << 14});
    CHECK_INT(say(d, "a", 1)->status, LLM_OK);
    CHECK_INT(driver_wait(d, driver_park(d, 0, "a"))->status, LLM_OK);
    CHECK_INT(driver_wait(d, driver_fork(d, 0, "a", "b", UINT32_MAX))->status, LLM_OK);
    const char *others[] = {"c", "d", "e", "f"};
    for (size_t i = 0; i < 4; i++) {
        CHECK_INT(say(d, others[i], 10 + i)->status, LLM_OK);
    }
    CHECK_INT(say(d, "a", 1)->status, LLM_OK);
    CHECK_INT(say(d, "b", 1)->status, LLM_OK);
    CHECK_INT(driver_close(d), 0);
}

/* The only slot has the parent, which is busy. The fork is a copy nevertheless. */
static void test_fork_of_the_only_session_with_a_slot(void)
{
    driver *d = driver_open(&(llm_engine_options){
        .model = "sim:dense,length=0,step_us=100", .n_sessions = 1, .capacity_policy = LLM_POLICY_PARK});
    generate_call call = call_of("parent", 1);
    call.max_tokens = 0;
    const uint64_t busy = driver_generate(d, &call);
    driver_wait_text(d, busy);
    driver_pause(d, busy, true);
    const answer *forked = driver_wait(d, driver_fork(d, 0, "parent", "child", UINT32_MAX));
    CHECK_INT(forked->status, LLM_OK);
    CHECK(forked->n_tokens >= LONG);
    driver_cancel(d, busy);
    driver_wait(d, busy);
    CHECK_INT(driver_wait(d, driver_fork(d, 0, "parent", "part", 100))->n_tokens, 100);
    CHECK_INT(driver_close(d), 0);
}

static void test_a_fork_never_costs_its_parent(void)
{
    driver *d =
        driver_open(&(llm_engine_options){.model = "sim:dense", .n_sessions = 1, .capacity_policy = LLM_POLICY_EVICT});
    const uint32_t entry = say(d, "parent", 1)->entry;
    CHECK_INT(driver_wait(d, driver_fork(d, 0, "parent", "child", UINT32_MAX))->status, LLM_CAPACITY);
    int32_t tokens[1024];
    CHECK(driver_tokens(d, entry, tokens, 1024) >= LONG);
    CHECK_INT(driver_close(d), 0);
}

static void test_a_fork_replaces_only_what_it_may(void)
{
    driver *d = driver_open_model("sim:dense,length=0");
    CHECK_INT(say(d, "parent", 1)->status, LLM_OK);
    const uint32_t entry = say(d, "child", 2)->entry;
    d->forks_beside = true;
    CHECK_INT(driver_wait(d, driver_fork(d, 0, "parent", "child", UINT32_MAX))->status, LLM_EXISTS);
    int32_t tokens[1024];
    CHECK(driver_tokens(d, entry, tokens, 1024) >= LONG);
    CHECK_INT(driver_wait(d, driver_fork(d, 0, "parent", "another", UINT32_MAX))->status, LLM_OK);
    d->forks_beside = false;
    CHECK_INT(driver_wait(d, driver_fork(d, 0, "parent", "child", UINT32_MAX))->status, LLM_OK);
    CHECK(say(d, "child", 1)->n_reused > 0);
    CHECK_INT(driver_close(d), 0);
}

/* The state is too large for the memory of parked states, so it would return to the disk after each load. The fork
 * shares the state on the disk. */
static void test_a_fork_of_what_lies_on_the_disk(void)
{
    const char *directory = new_directory();
    const llm_engine_options options = {.model = "sim:hybrid,length=0,state_kb=64",
                                        .n_sessions = 2,
                                        .n_parked_max = 4,
                                        .parked_bytes_max = 1,
                                        .capacity_policy = LLM_POLICY_PARK,
                                        .state_dir = directory};
    driver *d = driver_open(&options);
    CHECK_INT(say(d, "parent", 1)->status, LLM_OK);
    CHECK_INT(driver_close(d), 0);
    d = driver_open(&options);
    CHECK_INT(say(d, "child", 2)->status, LLM_OK);
    const answer *forked = driver_wait(d, driver_fork(d, 0, "parent", "child", UINT32_MAX));
    CHECK_INT(forked->status, LLM_OK);
    CHECK(forked->n_tokens >= LONG);
    CHECK_INT(driver_wait(d, driver_fork(d, 0, "parent", "part", 100))->n_tokens, 100);
    CHECK_INT(driver_wait(d, driver_close_session(d, 0, "parent"))->status, LLM_OK);
    CHECK_INT(say(d, "child", 1)->n_reused, LONG);
    CHECK_INT(say(d, "part", 1)->status, LLM_OK);
    CHECK_INT(driver_close(d), 0);
    remove_directory(directory);
}

/* Returns how many tokens are reused if the last prompt is sent again after the session was parked. */
static uint32_t reused_after_parking(size_t parked_bytes_max)
{
    const char *directory = new_directory();
    driver *d = driver_open(&(llm_engine_options){.model = "sim:dense,length=0",
                                                  .n_sessions = 1,
                                                  .n_parked_max = 4,
                                                  .parked_bytes_max = parked_bytes_max,
                                                  .capacity_policy = LLM_POLICY_PARK,
                                                  .state_dir = directory});
    say(d, "it", 1);
    driver_wait(d, driver_park(d, 0, "it"));
    driver_wait(d, driver_unsave(d, 0, "nothing")); /* the reply comes after all earlier disk jobs */
    driver_loop(d);
    const uint32_t n = say(d, "it", 1)->n_reused;
    driver_close(d);
    remove_directory(directory);
    return n;
}

/* With kept logits, the same prompt prefills no token. Logits take memory, and are dropped with the state. */
static void test_what_lies_on_the_disk_keeps_no_logits(void)
{
    CHECK_INT(reused_after_parking(1 << 30), LONG);
    CHECK_INT(reused_after_parking(1), LONG - 1);
}

/* The memory budget for parked states includes the logits that are kept with them. */
static void test_parked_logits_are_counted(void)
{
    driver *d = driver_open(&(llm_engine_options){
        .model = "sim:dense,length=0", .n_sessions = 1, .n_parked_max = 4, .capacity_policy = LLM_POLICY_PARK});
    llm_info info;
    llm_engine_info(d->engine, &info);
    const uint32_t n_logits_bytes = info.n_vocab * sizeof(float);
    const char *names[] = {"a", "b"};
    for (uint64_t i = 0; i < 2; i++) {
        say(d, names[i], 1 + i);
        driver_wait(d, driver_park(d, 0, names[i]));
        driver_loop(d);
        CHECK_INT(driver_counter(d, LLM_COUNTER_PARKED_MEMORY_BYTES),
                  driver_counter(d, LLM_COUNTER_PARKED_BYTES) + (i + 1) * n_logits_bytes);
    }
    CHECK_INT(say(d, "a", 1)->n_reused, LONG);
    driver_wait(d, driver_reset(d, 0, "b"));
    driver_loop(d);
    CHECK_INT(driver_counter(d, LLM_COUNTER_PARKED_MEMORY_BYTES), 0);
    CHECK_INT(driver_close(d), 0);
}

/* The tokens of a session whose state was lost are known. A fork gets the tokens, and prefills them. */
static void test_a_fork_of_a_lost_state_has_the_tokens(void)
{
    driver *d = driver_open(&(llm_engine_options){.model = "sim:hybrid,length=0",
                                                  .n_sessions = 1,
                                                  .n_parked_max = 4,
                                                  .parked_bytes_max = 1,
                                                  .capacity_policy = LLM_POLICY_PARK});
    CHECK_INT(say(d, "a", 1)->status, LLM_OK);
    CHECK_INT(driver_wait(d, driver_park(d, 0, "a"))->status, LLM_OK);
    CHECK(driver_wait(d, driver_fork(d, 0, "a", "b", UINT32_MAX))->n_tokens >= LONG);
    CHECK_INT(say(d, "b", 1)->reason, LLM_REASON_TORN);
    CHECK_INT(driver_close(d), 0);
}

/* ---- saved snapshots ---- */

static void test_what_cannot_be_loaded_replaces_nothing(void)
{
    const char *directory = new_directory();
    driver *d = open_with(directory, 2, LLM_POLICY_PARK);
    CHECK_INT(say(d, "it", 1)->status, LLM_OK);
    const answer *loaded = driver_wait(d, driver_command(d, LLM_COMMAND_LOAD, 0, "it", "nothing"));
    CHECK_INT(loaded->status, LLM_NOT_FOUND);
    CHECK(loaded->n_tokens >= LONG);
    CHECK(say(d, "it", 1)->n_reused > 0);
    CHECK_INT(driver_close(d), 0);
    remove_directory(directory);
}

static void test_a_saved_session_comes_back(void)
{
    const char *directory = new_directory();
    driver *d = open_with(directory, 2, LLM_POLICY_PARK);
    CHECK_INT(say(d, "it", 1)->status, LLM_OK);
    CHECK_INT(driver_wait(d, driver_command(d, LLM_COMMAND_SAVE, 0, "it", "label"))->status, LLM_OK);
    CHECK_INT(say(d, "it", 2)->status, LLM_OK);
    const answer *loaded = driver_wait(d, driver_command(d, LLM_COMMAND_LOAD, 0, "other", "label"));
    CHECK_INT(loaded->status, LLM_OK);
    CHECK(loaded->n_tokens >= LONG);
    CHECK(say(d, "other", 1)->n_reused > 0);
    CHECK_INT(driver_wait(d, driver_command(d, LLM_COMMAND_LOAD, 7, "other", "label"))->status, LLM_NOT_FOUND);
    CHECK_INT(driver_close(d), 0);
    remove_directory(directory);
}

/* Sessions open and close while the store reads a state. The state reaches only the session of its own owner and
 * name. */
static void test_a_load_never_lands_with_another_owner(void)
{
    const char *directory = new_directory();
    driver *d = open_with(directory, 1, LLM_POLICY_PARK);
    CHECK_INT(say(d, "it", 1)->status, LLM_OK);
    CHECK_INT(driver_wait(d, driver_command(d, LLM_COMMAND_SAVE, 0, "it", "label"))->status, LLM_OK);
    for (int i = 0; i < 50; i++) {
        const uint64_t load = driver_command(d, LLM_COMMAND_LOAD, 0, "it", "label");
        driver_close_session(d, 0, "it");
        generate_call foreign = call_of("foreign", 1);
        foreign.owner = 7;
        foreign.flags = LLM_GENERATE_COLD;
        const uint64_t request = driver_generate(d, &foreign);
        driver_cancel(d, request);
        CHECK_INT(driver_wait(d, load)->status, LLM_OK);
        const answer *a = driver_wait(d, request);
        int32_t tokens[1024];
        CHECK(driver_tokens(d, a->entry, tokens, 1024) <= a->finished.n_resident);
        driver_wait(d, driver_close_session(d, 7, "foreign"));
    }
    driver_wait_all(d);
    CHECK_INT(driver_close(d), 0);
    remove_directory(directory);
}

/* ---- restarts ---- */

static bool knows(driver *d, const char *session, uint64_t seed)
{
    return say(d, session, seed)->n_reused > 0;
}

/* The first run leaves files. The second run renames a session that is still on the disk. The third run knows the new
 * name. */
static void test_a_new_name_outlives_a_restart(void)
{
    const char *directory = new_directory();
    driver *d = open_with(directory, 2, LLM_POLICY_PARK);
    CHECK_INT(say(d, "old", 1)->status, LLM_OK);
    CHECK_INT(driver_close(d), 0);
    d = open_with(directory, 2, LLM_POLICY_PARK);
    CHECK_INT(driver_wait(d, driver_command(d, LLM_COMMAND_RENAME, 0, "old", "name"))->status, LLM_OK);
    CHECK_INT(driver_close(d), 0);
    d = open_with(directory, 2, LLM_POLICY_PARK);
    CHECK_INT(driver_wait(d, driver_reset(d, 0, "old"))->status, LLM_NOT_FOUND);
    CHECK(knows(d, "name", 1));
    CHECK_INT(driver_close(d), 0);
    remove_directory(directory);
}

/* Generates with a prompt of n_prompt tokens, of which a template adds the last 6. The answer is so long that it has
 * checkpoints too. Returns how many tokens were reused. */
static uint32_t reused_of_templated(driver *d, uint32_t n_prompt)
{
    const int32_t boundary = (int32_t)n_prompt - 6;
    generate_call call = call_of("it", 1);
    call.n_prompt = n_prompt;
    call.max_tokens = 700;
    call.boundaries = &boundary;
    call.n_boundaries = 1;
    return driver_wait(d, driver_generate(d, &call))->n_reused;
}

/* Of two checkpoints that are only a few tokens apart, a file has one. Exception: the last one is always kept, because
 * the same prompt may come again. */
static void test_files_leave_out_what_saves_few_tokens(void)
{
    const char *directory = new_directory();
    driver *d = open_with(directory, 2, LLM_POLICY_PARK);
    CHECK_INT(reused_of_templated(d, 100), 0);
    CHECK_INT(reused_of_templated(d, LONG), 100);
    CHECK_INT(driver_close(d), 0);
    d = open_with(directory, 2, LLM_POLICY_PARK);
    CHECK_INT(reused_of_templated(d, LONG), LONG);
    CHECK_INT(reused_of_templated(d, 100), 94);
    CHECK_INT(driver_close(d), 0);
    remove_directory(directory);
}

/* An answer has more checkpoints than a file has parts. Then the checkpoint at the end of the prompt is omitted
 * last. */
static void test_files_have_the_end_of_the_prompt_whatever_the_answer(void)
{
    const char *directory = new_directory();
    const llm_engine_options options = {
        .model = "sim:hybrid,length=0,ctx=65536", .n_sessions = 2, .n_ctx = 32768, .state_dir = directory};
    generate_call call = call_of("it", 1);
    call.max_tokens = 20000;
    driver *d = driver_open(&options);
    CHECK_INT(driver_wait(d, driver_generate(d, &call))->status, LLM_OK);
    CHECK_INT(driver_close(d), 0);
    call.max_tokens = 1;
    d = driver_open(&options);
    CHECK_INT(driver_wait(d, driver_generate(d, &call))->n_reused, LONG);
    CHECK_INT(driver_close(d), 0);
    remove_directory(directory);
}

static void test_what_was_reset_or_closed_stays_so_after_a_restart(void)
{
    const char *directory = new_directory();
    driver *d = open_with(directory, 2, LLM_POLICY_PARK);
    CHECK_INT(say(d, "reset", 1)->status, LLM_OK);
    CHECK_INT(say(d, "closed", 2)->status, LLM_OK);
    CHECK_INT(driver_close(d), 0);
    d = open_with(directory, 2, LLM_POLICY_PARK);
    CHECK_INT(driver_wait(d, driver_reset(d, 0, "reset"))->status, LLM_OK);
    CHECK_INT(driver_wait(d, driver_close_session(d, 0, "closed"))->status, LLM_OK);
    CHECK_INT(driver_close(d), 0);
    d = open_with(directory, 2, LLM_POLICY_PARK);
    CHECK(!knows(d, "reset", 1));
    CHECK(!knows(d, "closed", 2));
    CHECK_INT(driver_close(d), 0);
    remove_directory(directory);
}

static void test_sessions_come_back_under_every_policy(void)
{
    for (llm_policy policy = LLM_POLICY_REFUSE; policy < LLM_POLICY_N; policy++) {
        const char *directory = new_directory();
        driver *d = open_with(directory, 2, policy);
        CHECK_INT(say(d, "it", 1)->status, LLM_OK);
        CHECK_INT(driver_close(d), 0);
        d = open_with(directory, 2, policy);
        CHECK(knows(d, "it", 1));
        CHECK_INT(driver_close(d), 0);
        remove_directory(directory);
    }
}

/* ---- kills: the segment of a dead process stays ---- */

static driver *open_after_kill(const char *directory, uint32_t n_parked_max)
{
    return driver_open(&(llm_engine_options){.model = "sim:hybrid,length=0",
                                             .n_sessions = 2,
                                             .capacity_policy = LLM_POLICY_PARK,
                                             .n_parked_max = n_parked_max,
                                             .dead_table_names = dead_segment_name(),
                                             .state_dir = directory});
}

/* The segment's time and pin of a session count, whether or not the session has a file. */
static void test_a_kill_forgets_neither_use_nor_pin(void)
{
    enum { HOUR_MS = 3600 * 1000 };
    const char *directory = new_directory();
    driver *d = open_with(directory, 2, LLM_POLICY_PARK);
    int32_t tokens[1024];
    const uint32_t n = driver_tokens(d, say(d, "filed", 1)->entry, tokens, 1024);
    const uint64_t later_ms = driver_session(d, "filed").used_ms + HOUR_MS;
    const uint64_t id = driver_session(d, "filed").id;
    const dead_session sessions[] = {{"filed", tokens, n, later_ms, true, id},
                                     {"only", tokens, n, later_ms + 1, true, 0}};
    dead_segment_leave(d, sessions, 2);
    CHECK_INT(driver_close(d), 0);
    d = open_after_kill(directory, 0);
    CHECK_INT(driver_session(d, "filed").used_ms, later_ms);
    CHECK_INT(driver_session(d, "filed").is_pinned, 1);
    CHECK_INT(driver_session(d, "only").used_ms, later_ms + 1);
    CHECK_INT(driver_session(d, "only").is_pinned, 1);
    CHECK_INT(driver_close(d), 0);
    d = open_with(directory, 2, LLM_POLICY_PARK);
    CHECK_INT(driver_session(d, "filed").is_pinned, 1); /* now the file has the pin */
    CHECK_INT(driver_close(d), 0);
    remove_directory(directory);
}

static void test_a_restart_keeps_when_a_session_was_opened(void)
{
    const char *directory = new_directory();
    driver *d = open_with(directory, 2, LLM_POLICY_PARK);
    CHECK_INT(say(d, "it", 1)->status, LLM_OK);
    const uint64_t opened_ms = driver_session(d, "it").opened_ms;
    CHECK_INT(driver_close(d), 0);
    struct timespec now = {0};
    /* so that the next start is later */
    while ((uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000 <= opened_ms) {
        clock_gettime(CLOCK_REALTIME, &now);
    }
    d = open_with(directory, 2, LLM_POLICY_PARK);
    CHECK(opened_ms > 0);
    CHECK_INT(driver_session(d, "it").opened_ms, opened_ms);
    CHECK_INT(driver_close(d), 0);
    remove_directory(directory);
}

/* The context is too small for the sessions, so they get no entries. The file of one of them is older than the
 * segment. */
static void test_what_waits_after_a_kill_is_as_new_as_the_segment(void)
{
    enum { N_MORE = 50 };
    const char *directory = new_directory();
    driver *d = open_with(directory, 2, LLM_POLICY_PARK);
    int32_t tokens[1024];
    const uint32_t n = driver_tokens(d, say(d, "filed", 1)->entry, tokens, 1024);
    const uint64_t used_ms = driver_session(d, "filed").used_ms;
    CHECK_INT(driver_close(d), 0);
    d = open_with(directory, 2, LLM_POLICY_PARK);
    make_prompt(tokens + n, N_MORE, 9);
    const dead_session sessions[] = {{"filed", tokens, n + N_MORE, used_ms + 1, false, driver_session(d, "filed").id},
                                     {"only", tokens, n + 1, used_ms + 2, false, 0}};
    dead_segment_leave(d, sessions, 2);
    CHECK_INT(driver_close(d), 0);
    d = driver_open(&(llm_engine_options){.model = "sim:hybrid,length=0",
                                          .n_sessions = 2,
                                          .n_ctx = n,
                                          .capacity_policy = LLM_POLICY_PARK,
                                          .dead_table_names = dead_segment_name(),
                                          .state_dir = directory});
    CHECK_INT(driver_session(d, "filed").entry, UINT32_MAX);
    CHECK_INT(driver_counter(d, LLM_COUNTER_SESSIONS_DORMANT), 2);
    CHECK_INT(driver_close(d), 0);
    d = open_with(directory, 2, LLM_POLICY_PARK);
    CHECK_INT(driver_session(d, "filed").n_tokens, n + N_MORE);
    CHECK_INT(driver_session(d, "only").n_tokens, n + 1);
    CHECK_INT(driver_close(d), 0);
    remove_directory(directory);
}

/* The engine was killed while it prefilled a new conversation in a pinned session. The new branch begins with the same
 * tokens, and is newer. */
static void test_a_kill_takes_no_pin_from_another_branch(void)
{
    const char *directory = new_directory();
    driver *d = open_with(directory, 2, LLM_POLICY_PARK);
    int32_t tokens[1024];
    const uint32_t n = driver_tokens(d, say(d, "it", 1)->entry, tokens, 1024);
    CHECK_INT(driver_wait(d, driver_pin(d, 0, "it", true))->status, LLM_OK);
    const uint64_t used_ms = driver_session(d, "it").used_ms;
    const dead_session sessions[] = {{"it", tokens, n, used_ms, true, driver_session(d, "it").id},
                                     {"it", tokens, n / 2, used_ms + 1, false, 0}};
    dead_segment_leave(d, sessions, 2);
    CHECK_INT(driver_close(d), 0);
    d = open_after_kill(directory, 0);
    CHECK_INT(driver_session(d, "it").n_tokens, n);
    CHECK_INT(driver_session(d, "it").is_pinned, LLM_PIN_ANCHORED);
    CHECK_INT(driver_close(d), 0);
    remove_directory(directory);
}

/* ---- the order of last use ---- */

static uint64_t now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (uint64_t)t.tv_sec * 1000u + (uint64_t)t.tv_nsec / 1000000u;
}

/* Leaves sessions s0 to s7, which were used in this order. Time stamps count milliseconds, so this waits until each is
 * later. */
static void leave_eight(const char *directory)
{
    driver *d = open_with(directory, 8, LLM_POLICY_PARK);
    for (uint64_t i = 0; i < 8; i++) {
        const char name[] = {'s', (char)('0' + i), '\0'};
        say(d, name, i);
        const uint64_t used_ms = driver_session(d, name).used_ms;
        while (now_ms() == used_ms) {
        }
    }
    driver_close(d);
}

/* Returns whether exactly the sessions s<first> to s7 are open. */
static bool are_open_from(const driver *d, uint32_t first)
{
    bool good = true;
    for (uint32_t i = 0; i < 8; i++) {
        const char name[] = {'s', (char)('0' + i), '\0'};
        good = good && (driver_session(d, name).entry != UINT32_MAX) == (i >= first);
    }
    return good;
}

static void test_all_of_too_many_files_come_back(void)
{
    for (llm_policy policy = LLM_POLICY_REFUSE; policy < LLM_POLICY_N; policy++) {
        const char *directory = new_directory();
        leave_eight(directory);
        driver *d = driver_open(&(llm_engine_options){.model = "sim:hybrid,length=0",
                                                      .n_sessions = 2,
                                                      .capacity_policy = policy,
                                                      .n_parked_max = 1,
                                                      .state_dir = directory});
        CHECK(are_open_from(d, 0));
        CHECK_INT(driver_close(d), 0);
        remove_directory(directory);
    }
}

static void test_the_order_of_last_use_outlives_a_restart(void)
{
    const char *directory = new_directory();
    leave_eight(directory);
    driver *d = driver_open(&(llm_engine_options){.model = "sim:hybrid,length=0",
                                                  .n_sessions = 2,
                                                  .capacity_policy = LLM_POLICY_PARK,
                                                  .n_parked_max = 6,
                                                  .state_dir = directory});
    for (uint32_t i = 0; i < 4; i++) { /* each one replaces the least recently used session */
        const char name[] = {'n', (char)('0' + i), '\0'};
        CHECK(are_open_from(d, i));
        CHECK_INT(say(d, name, 10 + i)->status, LLM_OK);
    }
    CHECK(are_open_from(d, 4));
    CHECK_INT(driver_close(d), 0);
    remove_directory(directory);
}

/* Three sessions: one with a file, one with a file that the segment knows to be used later, and between them one that
 * only the segment knows. */
static void test_files_and_segment_are_one_order(void)
{
    enum { HOUR_MS = 3600 * 1000 };
    const char *directory = new_directory();
    driver *d = open_with(directory, 2, LLM_POLICY_PARK);
    int32_t tokens[1024];
    CHECK_INT(say(d, "oldest", 2)->status, LLM_OK);
    const uint32_t n = driver_tokens(d, say(d, "newest", 1)->entry, tokens, 1024);
    const uint64_t later_ms = now_ms() + HOUR_MS;
    const dead_session sessions[] = {{"newest", tokens, n, later_ms + 1, false, driver_session(d, "newest").id},
                                     {"middle", tokens, n, later_ms, false, 0}};
    dead_segment_leave(d, sessions, 2);
    CHECK_INT(driver_close(d), 0);
    d = open_after_kill(directory, 1);
    CHECK(driver_session(d, "oldest").entry != UINT32_MAX);
    CHECK_INT(say(d, "another", 3)->status, LLM_OK);
    CHECK(driver_session(d, "oldest").entry == UINT32_MAX && driver_session(d, "middle").entry != UINT32_MAX);
    CHECK_INT(say(d, "last", 4)->status, LLM_OK);
    CHECK(driver_session(d, "middle").entry == UINT32_MAX && driver_session(d, "newest").entry != UINT32_MAX);
    CHECK_INT(driver_close(d), 0);
    remove_directory(directory);
}

/* Returns the most memory that this process ever had, or 0 under a sanitizer, which keeps freed memory. */
static long peak_kb(void)
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    return 0;
#else
    struct rusage usage = {0};
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_maxrss;
#endif
}

/* A stop writes ten states of 4 MiB, but there are never ten copies in memory. */
static void test_a_stop_holds_a_copy_of_one_session_at_a_time(void)
{
    const char *directory = new_directory();
    driver *d = driver_open(
        &(llm_engine_options){.model = "sim:dense,length=0,state_kb=4096", .n_sessions = 10, .state_dir = directory});
    for (uint64_t i = 0; i < 10; i++) {
        const char name[] = {(char)('a' + i), '\0'};
        CHECK_INT(say(d, name, i)->status, LLM_OK);
    }
    const long before_kb = peak_kb();
    CHECK_INT(driver_close(d), 0);
    CHECK(peak_kb() - before_kb < 4 * 4096);
    remove_directory(directory);
}

int main(void)
{
    /* runs first, because the memory of earlier tests would hide a copy */
    RUN(test_a_stop_holds_a_copy_of_one_session_at_a_time);
    RUN(test_many_boundaries);
    RUN(test_a_checkpoint_stays_if_a_larger_one_does_not_fit);
    RUN(test_a_shared_head_steals_no_conversation);
    RUN(test_a_rewritten_prompt_takes_the_place_of_the_one_before);
    RUN(test_a_common_beginning_of_a_few_tokens_is_no_conversation);
    RUN(test_without_a_head_no_prefix_is_kept);
    RUN(test_a_dropped_state_is_never_taken_for_a_loaded_one);
    RUN(test_fork_of_the_only_session_with_a_slot);
    RUN(test_a_fork_never_costs_its_parent);
    RUN(test_a_fork_replaces_only_what_it_may);
    RUN(test_a_fork_of_what_lies_on_the_disk);
    RUN(test_what_lies_on_the_disk_keeps_no_logits);
    RUN(test_parked_logits_are_counted);
    RUN(test_a_fork_of_a_lost_state_has_the_tokens);
    RUN(test_what_cannot_be_loaded_replaces_nothing);
    RUN(test_a_saved_session_comes_back);
    RUN(test_a_load_never_lands_with_another_owner);
    RUN(test_a_new_name_outlives_a_restart);
    RUN(test_files_leave_out_what_saves_few_tokens);
    RUN(test_files_have_the_end_of_the_prompt_whatever_the_answer);
    RUN(test_what_was_reset_or_closed_stays_so_after_a_restart);
    RUN(test_sessions_come_back_under_every_policy);
    RUN(test_a_kill_forgets_neither_use_nor_pin);
    RUN(test_a_restart_keeps_when_a_session_was_opened);
    RUN(test_what_waits_after_a_kill_is_as_new_as_the_segment);
    RUN(test_a_kill_takes_no_pin_from_another_branch);
    RUN(test_all_of_too_many_files_come_back);
    RUN(test_the_order_of_last_use_outlives_a_restart);
    RUN(test_files_and_segment_are_one_order);
    return CHECK_RESULT();
}
