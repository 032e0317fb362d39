/* web.h - the least of an HTTP client: one kept connection to this machine, one request at a time, blocking. */
#pragma once

#include <stddef.h>
#include <stdint.h>

struct web {
    int fd;
    const char *key; /* or "" */
    char head[2048]; /* of the request being sent */
    char in[65536];
    size_t len;      /* of the answer as it has come */
    size_t body;     /* where its body begins */
    uint64_t length; /* of the body, as announced */
    uint32_t status;
};

void web_open(struct web *w, uint32_t port, const char *key);
void web_close(struct web *w);

/* Sends the head of a request whose body has `length` bytes, and begins an answer anew. */
void web_send_head(struct web *w, const char *method, const char *path, uint64_t length);
void web_send(const struct web *w, const void *data, size_t len);

/* Reads up to the end of the head; what came of the body lies behind it. */
void web_read_head(struct web *w);

/* A request with its body, and later its whole answer, which has to be small; the body of that is returned. */
void web_ask(struct web *w, const char *method, const char *path, const char *body);
const char *web_answer(struct web *w);

/* One whole exchange. The answer must have this status, and its body, which has to be small, is returned. */
const char *web_call(struct web *w, const char *method, const char *path, const char *body, uint32_t status);
