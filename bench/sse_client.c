/* sse_client: reads many event streams at once, with as little processor time as possible, so that what is measured is
 * the server. One thread, one epoll.
 *
 *   sse_client PORT PATH < BODIES        one request body per line; all are sent at once to 127.0.0.1
 *
 * Prints one line per stream: status,events,bytes,first_us,last_us
 *   events    "data: {" seen: the pieces of text and whatever else the stream says
 *   first_us  from sending the request to the first event
 *   last_us   ... to the end of the stream
 * and last: "cpu_us,N", the processor time that the client itself took. A refused request is printed to stderr and
 * makes the exit status 1. */
#include <errno.h>
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

enum { STREAMS_MAX = 256, READ_BYTES = 65536, HEAD_BYTES = 512 };

static const char EVENT[] = "data: {";
enum { EVENT_BYTES = sizeof EVENT - 1, KEPT_BYTES = EVENT_BYTES - 1 };

typedef struct stream {
    int fd;
    int status;
    int64_t sent_us, first_us, last_us;
    uint64_t n_events, n_bytes;
    char kept[KEPT_BYTES]; /* the last bytes of the read before, where an event may begin */
    char head[HEAD_BYTES]; /* the first bytes of the answer */
} stream;

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

static void send_all(int fd, const char *bytes, size_t n)
{
    while (n > 0) {
        ssize_t sent = send(fd, bytes, n, MSG_NOSIGNAL);
        if (sent < 0) {
            die("send");
        }
        bytes += sent;
        n -= (size_t)sent;
    }
}

static int connect_to(uint16_t port)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof address) != 0) {
        die("connect");
    }
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    return fd;
}

/* The whole request, in one buffer: two writes would be two packets. Owned by the caller. */
static char *request_of(const char *path, const char *body, size_t n_body, size_t *n_request)
{
    size_t capacity = strlen(path) + n_body + 256;
    char *request = malloc(capacity);
    if (request == NULL) {
        die("malloc");
    }
    int n_head = snprintf(request, capacity,
                          "POST %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
                          "Content-Type: application/json\r\nContent-Length: %zu\r\n\r\n",
                          path, n_body);
    memcpy(request + n_head, body, n_body);
    *n_request = (size_t)n_head + n_body;
    return request;
}

static size_t count_events(const char *bytes, size_t n)
{
    size_t count = 0;
    const char *end = bytes + n;
    while ((bytes = memmem(bytes, (size_t)(end - bytes), EVENT, EVENT_BYTES)) != NULL) {
        count++;
        bytes += EVENT_BYTES;
    }
    return count;
}

/* Takes what can be read. False at the end of the stream. */
static bool stream_read(stream *s)
{
    static char buffer[KEPT_BYTES + READ_BYTES];
    ssize_t n = recv(s->fd, buffer + KEPT_BYTES, READ_BYTES, 0);
    if (n < 0) {
        die("recv");
    }
    int64_t now = now_us();
    if (n == 0) {
        s->last_us = now - s->sent_us;
        return false;
    }
    if (s->n_bytes < HEAD_BYTES - 1) {
        size_t room = HEAD_BYTES - 1 - (size_t)s->n_bytes;
        memcpy(s->head + s->n_bytes, buffer + KEPT_BYTES, (size_t)n < room ? (size_t)n : room);
    }
    memcpy(buffer, s->kept, KEPT_BYTES);
    size_t events = count_events(buffer, KEPT_BYTES + (size_t)n);
    memcpy(s->kept, buffer + n, KEPT_BYTES);
    if (events > 0 && s->n_events == 0) {
        s->first_us = now - s->sent_us;
    }
    s->n_events += events;
    s->n_bytes += (uint64_t)n;
    return true;
}

static void read_all(stream *streams, size_t n_streams)
{
    int poll = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event events[STREAMS_MAX];
    for (size_t i = 0; i < n_streams; i++) {
        struct epoll_event wanted = {.events = EPOLLIN, .data.ptr = &streams[i]};
        if (epoll_ctl(poll, EPOLL_CTL_ADD, streams[i].fd, &wanted) != 0) {
            die("epoll_ctl");
        }
    }
    for (size_t n_open = n_streams; n_open > 0;) {
        int n = epoll_wait(poll, events, STREAMS_MAX, -1);
        if (n < 0 && errno != EINTR) {
            die("epoll_wait");
        }
        for (int i = 0; i < n; i++) {
            stream *s = events[i].data.ptr;
            if (!stream_read(s)) {
                close(s->fd);
                n_open--;
            }
        }
    }
    close(poll);
}

static int report(stream *streams, size_t n_streams)
{
    int result = 0;
    for (size_t i = 0; i < n_streams; i++) {
        stream *s = &streams[i];
        if (sscanf(s->head, "HTTP/1.1 %d", &s->status) != 1 || s->status != 200) {
            fprintf(stderr, "sse_client: stream %zu: %s\n", i, s->head);
            result = 1;
        }
        printf("%d,%llu,%llu,%lld,%lld\n", s->status, (unsigned long long)s->n_events, (unsigned long long)s->n_bytes,
               (long long)s->first_us, (long long)s->last_us);
    }
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    printf("cpu_us,%lld\n", (long long)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1000000 +
                                usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
    return result;
}

int main(int argc, char **argv)
{
    static stream streams[STREAMS_MAX];
    static char *requests[STREAMS_MAX];
    static size_t n_bytes[STREAMS_MAX];
    char *line = NULL;
    size_t capacity = 0, n_streams = 0;
    if (argc != 3 || atoi(argv[1]) <= 0) {
        fprintf(stderr, "usage: sse_client PORT PATH < BODIES\n");
        return 2;
    }
    for (ssize_t n; n_streams < STREAMS_MAX && (n = getline(&line, &capacity, stdin)) > 0; n_streams++) {
        requests[n_streams] = request_of(argv[2], line, (size_t)n, &n_bytes[n_streams]);
        streams[n_streams].fd = connect_to((uint16_t)atoi(argv[1]));
    }
    for (size_t i = 0; i < n_streams; i++) {
        streams[i].sent_us = now_us();
        send_all(streams[i].fd, requests[i], n_bytes[i]);
        free(requests[i]);
    }
    free(line);
    read_all(streams, n_streams);
    return report(streams, n_streams);
}
