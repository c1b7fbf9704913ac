/* sse_client: reads many event streams at once, with as little processor time as possible, so that what is measured is
 * the server. One thread, one epoll.
 *
 *   sse_client PORT PATH < REQUESTS
 *
 * One request per line: USER PAUSE_MS CANCEL_MS BODY. A user sends one request after the other: each PAUSE_MS after the
 * one before it has ended, the first PAUSE_MS after the start. CANCEL_MS after sending it the client hangs up; 0: never.
 *
 * Prints one line per request: status,events,bytes,sent_us,first_us,last_us,arrivals
 *   status    of HTTP; 0 when the client hung up before there was one
 *   events    "data: {" seen: the pieces of text and whatever else the stream says
 *   sent_us   from the start to sending it
 *   first_us  from sending the request to the first event
 *   last_us   ... to the end of the stream
 *   arrivals  ... to each event, with spaces between them
 * and last: "cpu_us,N", the processor time that the client itself took. A refused request is printed to stderr and
 * makes the exit status 1. */
#include <errno.h>
#include <limits.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { REQUESTS_MAX = 16384, USERS_MAX = 4096, BATCH = 256, READ_BYTES = 65536, HEAD_BYTES = 512, FIRST_ARRIVALS = 64 };

static const char EVENT[] = "data: {";
enum { EVENT_BYTES = sizeof EVENT - 1, KEPT_BYTES = EVENT_BYTES - 1 };

typedef enum { WAITS, RUNS, ENDED } request_state;

typedef struct request {
    struct request *next; /* of the same user; waits until this one has ended */
    request_state state;
    bool is_cancelled;
    int64_t pause_us, cancel_us;
    char *bytes; /* owned; the whole request in one buffer: two writes would be two packets */
    size_t n_bytes_sent;
    int fd, status;
    int64_t due_us; /* when WAITS: to be sent then; INT64_MAX: after another. When RUNS: to be hung up then */
    int64_t sent_us, first_us, last_us;
    uint64_t n_bytes;
    size_t n_events, capacity;
    int64_t *arrivals_us;  /* owned */
    char kept[KEPT_BYTES]; /* the last bytes of the read before, where an event may begin */
    char head[HEAD_BYTES]; /* the first bytes of the answer */
} request;

static request requests[REQUESTS_MAX];
static size_t n_requests;

static int64_t now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

static void die(const char *what)
{
    fprintf(stderr, "sse_client: %s: %s\n", what, strerror(errno));
    exit(2);
}

static void *allocated(void *memory)
{
    if (memory == NULL) {
        die("memory");
    }
    return memory;
}

/* --- requests ---------------------------------------------------------------------------------------------------- */

static void write_request(request *r, const char *path, const char *body, size_t n_body)
{
    size_t capacity = strlen(path) + n_body + 256;
    r->bytes = allocated(malloc(capacity));
    int n_head = snprintf(r->bytes, capacity,
                          "POST %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
                          "Content-Type: application/json\r\nContent-Length: %zu\r\n\r\n",
                          path, n_body);
    memcpy(r->bytes + n_head, body, n_body);
    r->n_bytes_sent = (size_t)n_head + n_body;
}

static void read_requests(const char *path)
{
    static request *last_of[USERS_MAX];
    char *line = NULL;
    size_t capacity = 0;
    for (ssize_t n; n_requests < REQUESTS_MAX && (n = getline(&line, &capacity, stdin)) > 0;) {
        long user, pause_ms, cancel_ms;
        int n_read = 0;
        if (sscanf(line, "%ld %ld %ld %n", &user, &pause_ms, &cancel_ms, &n_read) != 3 || user < 0 ||
            user >= USERS_MAX) {
            fprintf(stderr, "sse_client: not a request: %.40s\n", line);
            exit(2);
        }
        request *r = &requests[n_requests++];
        *r = (request){.fd = -1, .pause_us = pause_ms * 1000, .cancel_us = cancel_ms * 1000, .due_us = INT64_MAX};
        write_request(r, path, line + n_read, (size_t)(n - n_read));
        if (last_of[user] == NULL) {
            r->due_us = r->pause_us; /* from the start, which is not yet */
        } else {
            last_of[user]->next = r;
        }
        last_of[user] = r;
    }
    free(line);
}

/* --- one request ------------------------------------------------------------------------------------------------- */

static void connect_to(request *r, uint16_t port)
{
    int on = 1;
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    r->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (r->fd < 0 || connect(r->fd, (struct sockaddr *)&address, sizeof address) != 0) {
        die("connect");
    }
    setsockopt(r->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

static void start(request *r, uint16_t port, int poll)
{
    struct epoll_event wanted = {.events = EPOLLIN, .data.ptr = r};
    if (r->fd < 0) {
        connect_to(r, port);
    }
    if (epoll_ctl(poll, EPOLL_CTL_ADD, r->fd, &wanted) != 0) {
        die("epoll_ctl");
    }
    r->state = RUNS;
    r->sent_us = now_us();
    r->due_us = r->cancel_us > 0 ? r->sent_us + r->cancel_us : INT64_MAX;
    for (size_t n = 0; n < r->n_bytes_sent;) {
        ssize_t sent = send(r->fd, r->bytes + n, r->n_bytes_sent - n, MSG_NOSIGNAL);
        if (sent < 0) {
            die("send");
        }
        n += (size_t)sent;
    }
    free(r->bytes);
}

static void end(request *r, bool is_cancelled)
{
    int64_t now = now_us();
    close(r->fd);
    r->state = ENDED;
    r->is_cancelled = is_cancelled;
    r->last_us = now - r->sent_us;
    if (r->next != NULL) {
        r->next->due_us = now + r->next->pause_us;
    }
}

static void note_arrival(request *r, int64_t at_us)
{
    if (r->n_events == r->capacity) {
        r->capacity = r->capacity == 0 ? FIRST_ARRIVALS : 2 * r->capacity;
        r->arrivals_us = allocated(realloc(r->arrivals_us, r->capacity * sizeof *r->arrivals_us));
    }
    r->arrivals_us[r->n_events++] = at_us;
}

static void note_events(request *r, const char *bytes, size_t n, int64_t at_us)
{
    const char *end = bytes + n;
    while ((bytes = memmem(bytes, (size_t)(end - bytes), EVENT, EVENT_BYTES)) != NULL) {
        note_arrival(r, at_us);
        bytes += EVENT_BYTES;
    }
}

/* Takes what can be read. False at the end of the stream. */
static bool take(request *r)
{
    static char buffer[KEPT_BYTES + READ_BYTES];
    ssize_t n = recv(r->fd, buffer + KEPT_BYTES, READ_BYTES, 0);
    if (n < 0) {
        die("recv");
    }
    if (n == 0) {
        return false;
    }
    if (r->n_bytes < HEAD_BYTES - 1) {
        size_t room = HEAD_BYTES - 1 - (size_t)r->n_bytes;
        memcpy(r->head + r->n_bytes, buffer + KEPT_BYTES, (size_t)n < room ? (size_t)n : room);
    }
    memcpy(buffer, r->kept, KEPT_BYTES);
    note_events(r, buffer, KEPT_BYTES + (size_t)n, now_us() - r->sent_us);
    memcpy(r->kept, buffer + n, KEPT_BYTES);
    r->n_bytes += (uint64_t)n;
    return true;
}

/* --- all of them ------------------------------------------------------------------------------------------------- */

/* Sends and hangs up what is due. How many ms until the next is, -1: none is to come. */
static int act_on_time(uint16_t port, int poll)
{
    int64_t next_us = INT64_MAX;
    for (size_t i = 0; i < n_requests; i++) {
        request *r = &requests[i];
        if (r->state != ENDED && r->due_us <= now_us()) {
            if (r->state == WAITS) {
                start(r, port, poll);
            } else {
                end(r, true);
            }
        }
        if (r->state != ENDED && r->due_us < next_us) {
            next_us = r->due_us;
        }
        if (r->state == ENDED && r->next != NULL && r->next->state == WAITS && r->next->due_us < next_us) {
            next_us = r->next->due_us;
        }
    }
    int64_t left_us = next_us == INT64_MAX ? -1 : next_us - now_us();
    return next_us == INT64_MAX ? -1 : left_us <= 0 ? 0 : (int)((left_us + 999) / 1000);
}

static void run_all(uint16_t port)
{
    int poll = epoll_create1(EPOLL_CLOEXEC), wait_ms;
    struct epoll_event events[BATCH];
    size_t n_ended = 0;
    for (size_t i = 0; i < n_requests; i++) {
        if (requests[i].due_us == 0) {
            connect_to(&requests[i], port); /* before the start: they are sent as one */
        }
    }
    int64_t start_us = now_us();
    for (size_t i = 0; i < n_requests; i++) {
        requests[i].due_us += requests[i].due_us == INT64_MAX ? 0 : start_us;
    }
    wait_ms = act_on_time(port, poll);
    while (n_ended < n_requests) {
        int n = epoll_wait(poll, events, BATCH, wait_ms);
        if (n < 0 && errno != EINTR) {
            die("epoll_wait");
        }
        bool has_ended = false;
        for (int i = 0; i < n; i++) {
            request *r = events[i].data.ptr;
            if (r->state == RUNS && !take(r)) {
                end(r, false);
                has_ended = true;
            }
        }
        if (has_ended || wait_ms >= 0) {
            wait_ms = act_on_time(port, poll);
            n_ended = 0;
            for (size_t i = 0; i < n_requests; i++) {
                n_ended += requests[i].state == ENDED;
            }
        }
    }
    for (size_t i = 0; i < n_requests; i++) {
        requests[i].first_us = requests[i].n_events > 0 ? requests[i].arrivals_us[0] : 0;
        requests[i].sent_us -= start_us;
    }
    close(poll);
}

static int report(void)
{
    int result = 0;
    for (size_t i = 0; i < n_requests; i++) {
        request *r = &requests[i];
        if ((sscanf(r->head, "HTTP/1.1 %d", &r->status) != 1 || r->status != 200) && !r->is_cancelled) {
            fprintf(stderr, "sse_client: request %zu: %s\n", i, r->head);
            result = 1;
        }
        printf("%d,%zu,%llu,%lld,%lld,%lld,", r->status, r->n_events, (unsigned long long)r->n_bytes,
               (long long)r->sent_us, (long long)r->first_us, (long long)r->last_us);
        for (size_t event = 0; event < r->n_events; event++) {
            printf("%s%lld", event == 0 ? "" : " ", (long long)r->arrivals_us[event]);
        }
        putchar('\n');
        free(r->arrivals_us);
    }
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    printf("cpu_us,%lld\n", (long long)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1000000 +
                                usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
    return result;
}

int main(int argc, char **argv)
{
    if (argc != 3 || atoi(argv[1]) <= 0) {
        fprintf(stderr, "usage: sse_client PORT PATH < REQUESTS\n");
        return 2;
    }
    read_requests(argv[2]);
    run_all((uint16_t)atoi(argv[1]));
    return report();
}
