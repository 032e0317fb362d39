/* bench-http - sends requests to servers and prints how long each answer took. It uses plain
 * blocking sockets that are kept open, so that the server is measured and as little as possible
 * of this program.
 *
 *     bench-http rounds N WARMUP SEED                      the plan on standard input
 *     bench-http rate SECONDS CONNECTIONS PORT KEY METHOD PATH BODY WORD    as fast as possible
 *     bench-http lives SECONDS CONNECTIONS PORT KEY SANDBOX EXECUTION WORD  whole lives (`life` below)
 *     bench-http burst CONNECTIONS PORT KEY METHOD PATH BODY WORD    one request each, at once
 *     bench-http put|get PORT KEY PATH MIBS                one file
 *     bench-http copy MIBS                                 the same bytes through a plain socket
 *
 * As in bench-spawn, every round makes each request of the plan once, in an order drawn anew for
 * the round. The plan, its fields separated by tabs:
 *
 *     call  NAME  PORT  KEY  METHOD  PATH  BODY  STATUS  WORD   WORD must stand in the answer
 *     life  NAME  PORT  KEY  SANDBOX  EXECUTION  WORD           create, execute, delete: two bodies
 *     ask   NAME  PROGRAM  ARG...                               resident: a newline asks for its us
 *     run   NAME  EVERY  PROGRAM  ARG...                        started in every EVERY-th round
 *
 * Each answer prints "NAME<tab>nanoseconds". An unexpected answer ends the whole measurement: a
 * refusal is fast, and would look like a good figure. */
#define _GNU_SOURCE 1
#include "common.h"
#include "run.h"
#include "web.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define SUBJECTS_MAX 16
#define FIELDS_MAX RUN_ARGS_MAX
#define CONNECTIONS_MAX 1024u
#define PATIENCE_MS 60000
#define SAMPLES_MAX 1000000u
#define PIECE (256u * 1024)
#define MIB (1024u * 1024)

struct subject {
    char *field[FIELDS_MAX]; /* kind, name, ... */
    size_t nfields;
    uint32_t every;
    struct web web;
    FILE *from; /* ask */
    int to;
    pid_t pid;
};

static struct subject *subjects[SUBJECTS_MAX];
static size_t nsubjects;

/* --- the plan --- */

static void subject_parse(char *line)
{
    struct subject *s = calloc(1, sizeof(*s));

    if (!s || nsubjects == SUBJECTS_MAX)
        die("more than %d lines in the plan", SUBJECTS_MAX);
    for (char *field; (field = strsep(&line, "\t")) != NULL;) {
        if (s->nfields + 1 == FIELDS_MAX)
            die("a line of the plan has more than %d fields", FIELDS_MAX - 1);
        s->field[s->nfields++] = field;
    }
    const char *kind = s->field[0];
    size_t want = strcmp(kind, "call") == 0 ? 9 : strcmp(kind, "life") == 0 ? 7 : 0;
    bool program = (strcmp(kind, "ask") == 0 && s->nfields >= 3) || (strcmp(kind, "run") == 0 && s->nfields >= 4);
    if (want != 0 ? s->nfields != want : !program)
        die("the plan has a line that begins with '%s' and has %zu fields", kind, s->nfields);
    subjects[nsubjects++] = s;
}

static void plan_read(void)
{
    static char text[65536]; /* subjects point into it */
    size_t len = fread(text, 1, sizeof(text) - 1, stdin);
    char *at = text;

    if (len == sizeof(text) - 1)
        die("the plan is too long");
    for (char *line; (line = strsep(&at, "\n")) != NULL;)
        if (*line)
            subject_parse(line);
    if (nsubjects == 0)
        die("the plan is empty");
}

/* --- one request --- */

static void ask_start(struct subject *s)
{
    int to[2], from[2];

    if (pipe2(to, O_CLOEXEC) < 0 || pipe2(from, O_CLOEXEC) < 0 || (s->pid = fork()) < 0)
        die("%s: %s", s->field[1], strerror(errno));
    if (s->pid == 0) {
        if (dup2(to[0], 0) == 0 && dup2(from[1], 1) == 1)
            execvp(s->field[2], s->field + 2);
        die("%s: %s", s->field[2], strerror(errno));
    }
    close(to[0]);
    close(from[1]);
    s->to = to[1];
    s->from = fdopen(from[0], "r");
}

static void ask_end(struct subject *s)
{
    int status = 1;

    close(s->to);
    if (waitpid(s->pid, &status, 0) < 0 || status != 0)
        die("%s failed", s->field[1]);
}

/* The time that the program itself measured, without the cost of the request to it. */
static uint64_t ask_once(struct subject *s)
{
    char line[64];

    if (write(s->to, "\n", 1) != 1 || !fgets(line, sizeof(line), s->from))
        die("%s ended without an answer", s->field[1]);
    return strtoull(line, NULL, 10) * 1000;
}

static void expect(const struct subject *s, const char *answer, const char *word)
{
    if (!strstr(answer, word))
        die("%s was answered without %s: %s", s->field[1], word, answer);
}

static uint64_t call_once(struct subject *s)
{
    uint64_t began = now_ns();
    const char *answer = web_call(&s->web, s->field[4], s->field[5], s->field[6], number(s->field[7], 999));
    uint64_t took = now_ns() - began;

    expect(s, answer, s->field[8]);
    return took;
}

static uint64_t life_once(struct subject *s)
{
    char path[128], id[64];
    uint64_t began = now_ns();
    const char *answer = web_call(&s->web, "POST", "/v1/sandboxes", s->field[4], 201);

    if (sscanf(answer, "{\"id\":\"%63[a-z0-9]\"", id) != 1)
        die("%s: a sandbox without an id: %s", s->field[1], answer);
    snprintf(path, sizeof(path), "/v1/sandboxes/%s/executions", id);
    expect(s, web_call(&s->web, "POST", path, s->field[5], 200), s->field[6]);
    snprintf(path, sizeof(path), "/v1/sandboxes/%s", id);
    web_call(&s->web, "DELETE", path, "", 200);
    return now_ns() - began;
}

static uint64_t run_once(const struct subject *s)
{
    uint64_t began = now_ns();

    run_reap(s->field[1], run_start(s->field[1], s->field + 3, -1, -1, false));
    return now_ns() - began;
}

static uint64_t subject_once(struct subject *s)
{
    switch (s->field[0][0]) {
    case 'c':
        return call_once(s);
    case 'l':
        return life_once(s);
    case 'r':
        return run_once(s);
    default:
        return ask_once(s);
    }
}

static void rounds(uint32_t count, uint32_t warmup, uint32_t seed)
{
    uint32_t state = seed != 0 ? seed : 1;
    size_t order[SUBJECTS_MAX];

    plan_read();
    for (size_t i = 0; i < nsubjects; i++) {
        struct subject *s = subjects[i];

        order[i] = i;
        s->every = s->field[0][0] == 'r' ? number(s->field[2], 1000000) : 1;
        if (s->field[0][0] == 'a')
            ask_start(s);
        else if (s->field[0][0] != 'r')
            web_open(&s->web, number(s->field[2], 65535), s->field[3]);
    }
    for (uint32_t round = 0; round < warmup + count; round++) {
        shuffle(order, nsubjects, &state);
        for (size_t i = 0; i < nsubjects; i++) {
            struct subject *s = subjects[order[i]];

            if (s->every == 0 || round % s->every != 0)
                continue;
            uint64_t ns = subject_once(s);

            if (round >= warmup)
                printf("%s\t%" PRIu64 "\n", s->field[1], ns);
        }
    }
    for (size_t i = 0; i < nsubjects; i++)
        if (subjects[i]->pid)
            ask_end(subjects[i]);
}

/* --- as many as possible --- */

struct question {
    uint32_t port;
    const char *key, *method, *path, *body, *word; /* the word stands in every answer */
};

static struct web webs[CONNECTIONS_MAX];
static uint64_t asked[CONNECTIONS_MAX], samples[SAMPLES_MAX];

static void open_many(const struct question *q, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        web_open(&webs[i], q->port, q->key);
}

static void ask(const struct question *q, uint32_t i)
{
    asked[i] = now_ns();
    web_ask(&webs[i], q->method, q->path, q->body);
}

static uint64_t hear(const struct question *q, uint32_t i)
{
    const char *answer = web_answer(&webs[i]);
    uint64_t now = now_ns();

    if (webs[i].status != 200 || !strstr(answer, q->word))
        die("an answer that was not expected: %" PRIu32 " %s", webs[i].status, answer);
    return now;
}

/* All n connections send a request at once, and the next as soon as they are answered, until
 * `end`. Returns the number of answers; *ret is the time of the last. */
static size_t ask_until(const struct question *q, uint32_t n, uint64_t end, uint64_t *ret)
{
    static struct pollfd polls[CONNECTIONS_MAX];
    size_t done = 0;
    uint32_t waiting = n;

    for (uint32_t i = 0; i < n; i++) {
        polls[i] = (struct pollfd){ .fd = webs[i].fd, .events = POLLIN };
        ask(q, i);
    }
    while (waiting > 0) {
        if (poll(polls, n, PATIENCE_MS) <= 0)
            die("no answer for %d s", PATIENCE_MS / 1000);
        for (uint32_t i = 0; i < n; i++) {
            if (!polls[i].revents)
                continue;
            *ret = hear(q, i);
            samples[done++] = *ret - asked[i];
            if (*ret < end && done + n < SAMPLES_MAX)
                ask(q, i);
            else {
                polls[i].fd = -1;
                waiting--;
            }
        }
    }
    return done;
}

static void rate(uint32_t seconds, uint32_t n, const struct question *q)
{
    open_many(q, n);
    uint64_t began = now_ns(), over = began;
    size_t done = ask_until(q, n, began + seconds * NS_PER_S, &over);

    printf("perSecond\t%.1f\n", (double)done * 1e9 / (double)(over - began));
    print_times(samples, done);
}

/* --- many lives: each connection creates, executes and deletes, and starts again --- */

struct life {
    enum { CREATE, EXECUTE, DELETE } step; /* the current step */
    char path[128];
    uint64_t began;
};

static struct life lives_of[CONNECTIONS_MAX];

static void life_begin(const struct question *q, uint32_t i)
{
    lives_of[i] = (struct life){ .began = now_ns() };
    web_ask(&webs[i], "POST", "/v1/sandboxes", q->body);
}

/* Takes one answer and sends the next request; true when the sandbox was deleted. */
static bool life_goes_on(const struct question *q, uint32_t i)
{
    const char *answer = web_answer(&webs[i]);
    struct life *l = &lives_of[i];
    char id[64];

    if (webs[i].status != (l->step == CREATE ? 201 : 200) || (l->step == EXECUTE && !strstr(answer, q->word)) ||
        (l->step == CREATE && sscanf(answer, "{\"id\":\"%63[a-z0-9]\"", id) != 1))
        die("an answer that was not expected: %" PRIu32 " %s", webs[i].status, answer);
    switch (l->step) {
    case CREATE:
        l->step = EXECUTE;
        snprintf(l->path, sizeof(l->path), "/v1/sandboxes/%s/executions", id);
        web_ask(&webs[i], "POST", l->path, q->path);
        return false;
    case EXECUTE:
        l->step = DELETE;
        *strrchr(l->path, '/') = '\0';
        web_ask(&webs[i], "DELETE", l->path, "");
        return false;
    case DELETE:
        break;
    }
    return true;
}

/* The question's body is that of a sandbox, its path that of an execution. */
static void lives(uint32_t seconds, uint32_t n, const struct question *q)
{
    static struct pollfd polls[CONNECTIONS_MAX];
    size_t done = 0;
    uint32_t living = n;

    open_many(q, n);
    uint64_t began = now_ns(), end = began + seconds * NS_PER_S, now = began;
    for (uint32_t i = 0; i < n; i++) {
        polls[i] = (struct pollfd){ .fd = webs[i].fd, .events = POLLIN };
        life_begin(q, i);
    }
    while (living > 0) {
        if (poll(polls, n, PATIENCE_MS) <= 0)
            die("no answer for %d s", PATIENCE_MS / 1000);
        for (uint32_t i = 0; i < n; i++) {
            if (!polls[i].revents || !life_goes_on(q, i))
                continue;
            now = now_ns();
            samples[done++] = now - lives_of[i].began;
            if (now < end && done + n < SAMPLES_MAX) {
                life_begin(q, i);
            } else {
                polls[i].fd = -1;
                living--;
            }
        }
    }
    printf("perSecond\t%.1f\n", (double)done * 1e9 / (double)(now - began));
    print_times(samples, done);
}

/* Each connection sends one request, all at the same time. */
static void burst(uint32_t n, const struct question *q)
{
    open_many(q, n);
    uint64_t began = now_ns(), over = began;
    size_t done = ask_until(q, n, 0, &over);

    printf("all\t%" PRIu64 "\n", over - began);
    print_times(samples, done);
}

/* --- many bytes --- */

static char bytes[MIB + PIECE]; /* the byte at offset o of a stream is bytes[o % MIB] */

static void bytes_make(void)
{
    uint32_t state = 1;

    for (size_t i = 0; i < sizeof(bytes); i++) {
        state = state * 1664525u + 1013904223u;
        bytes[i] = i < MIB ? (char)(state >> 24) : bytes[i - MIB];
    }
}

static void bytes_check(uint64_t offset, const char *data, size_t len)
{
    if (memcmp(data, bytes + offset % MIB, len < 16 ? len : 16) != 0)
        die("other bytes came back at offset %" PRIu64, offset);
}

static void send_all(const struct web *w, uint64_t total)
{
    for (uint64_t done = 0; done < total; done += PIECE)
        web_send(w, bytes + done % MIB, total - done < PIECE ? total - done : PIECE);
}

static uint64_t receive_all(int fd, uint64_t done, uint64_t total)
{
    static char piece[PIECE];

    while (done < total) {
        ssize_t n = recv(fd, piece, sizeof(piece), 0);

        if (n <= 0)
            die("%" PRIu64 " of %" PRIu64 " bytes came: %s", done, total, n < 0 ? strerror(errno) : "end");
        bytes_check(done, piece, (size_t)n);
        done += (uint64_t)n;
    }
    return done;
}

static uint64_t put(struct web *w, const char *path, uint64_t total)
{
    uint64_t began = now_ns();

    web_send_head(w, "PUT", path, total);
    send_all(w, total);
    web_read_head(w);
    if (w->status != 200)
        die("PUT was answered %" PRIu32 ": %s", w->status, w->in);
    return now_ns() - began;
}

static uint64_t get(struct web *w, const char *path, uint64_t total)
{
    uint64_t began = now_ns();

    web_send_head(w, "GET", path, 0);
    web_read_head(w);
    if (w->status != 200 || w->length != total)
        die("GET was answered %" PRIu32 ": %s", w->status, w->in);
    bytes_check(0, w->in + w->body, w->len - w->body);
    receive_all(w->fd, w->len - w->body, total);
    return now_ns() - began;
}

/* One process sends, another receives and discards; it ends when the receiver has confirmed the
 * last byte. */
static uint64_t copy(uint64_t total)
{
    struct sockaddr_in at = { .sin_family = AF_INET, .sin_addr = { htonl(INADDR_LOOPBACK) } };
    socklen_t len = sizeof(at);
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    struct web w = { .fd = -1 };
    pid_t pid;

    if (listener < 0 || bind(listener, (struct sockaddr *)&at, len) < 0 || listen(listener, 1) < 0 ||
        getsockname(listener, (struct sockaddr *)&at, &len) < 0 || (pid = fork()) < 0)
        die("a socket for the copy: %s", strerror(errno));
    if (pid == 0) {
        int fd = accept(listener, NULL, NULL);

        receive_all(fd, 0, total);
        _exit(write(fd, "", 1) == 1 ? 0 : 1);
    }
    web_open(&w, ntohs(at.sin_port), "");
    uint64_t began = now_ns();
    send_all(&w, total);
    if (recv(w.fd, w.in, 1, 0) != 1)
        die("the receiver went away");
    uint64_t took = now_ns() - began;
    waitpid(pid, NULL, 0);
    return took;
}

static uint64_t bulk(char **argv)
{
    static struct web w;
    uint64_t total = (uint64_t)number(argv[5], 65536) * MIB;

    web_open(&w, number(argv[2], 65535), argv[3]);
    return strcmp(argv[1], "put") == 0 ? put(&w, argv[4], total) : get(&w, argv[4], total);
}

static const struct question *question(char **word)
{
    static struct question q;

    q = (struct question){ number(word[0], 65535), word[1], word[2], word[3], word[4], word[5] };
    return &q;
}

int main(int argc, char **argv)
{
    const char *mode = argc > 1 ? argv[1] : "";

    bytes_make();
    if (argc == 5 && strcmp(mode, "rounds") == 0)
        rounds(number(argv[2], 1000000), number(argv[3], 1000000), number(argv[4], UINT32_MAX));
    else if (argc == 10 && strcmp(mode, "rate") == 0)
        rate(number(argv[2], 3600), number(argv[3], CONNECTIONS_MAX), question(argv + 4));
    else if (argc == 9 && strcmp(mode, "lives") == 0)
        lives(number(argv[2], 3600), number(argv[3], CONNECTIONS_MAX),
              &(struct question){ number(argv[4], 65535), argv[5], "", argv[7], argv[6], argv[8] });
    else if (argc == 9 && strcmp(mode, "burst") == 0)
        burst(number(argv[2], CONNECTIONS_MAX), question(argv + 3));
    else if (argc == 6 && (strcmp(mode, "put") == 0 || strcmp(mode, "get") == 0))
        printf("%" PRIu64 "\n", bulk(argv));
    else if (argc == 3 && strcmp(mode, "copy") == 0)
        printf("%" PRIu64 "\n", copy((uint64_t)number(argv[2], 65536) * MIB));
    else
        die("usage: rounds N WARMUP SEED | rate SECONDS CONNECTIONS QUESTION | lives SECONDS CONNECTIONS PORT KEY "
            "SANDBOX "
            "EXECUTION WORD | burst CONNECTIONS QUESTION | put|get "
            "PORT KEY PATH MIBS | copy "
            "MIBS");
    return 0;
}
