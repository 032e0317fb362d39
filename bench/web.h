/* web.h - a minimal HTTP client: one kept connection to this machine, one request at a time,
 * blocking. */
#pragma once

#include <stddef.h>
#include <stdint.h>

struct web {
    int fd;
    const char *key; /* or "" */
    char head[2048]; /* of the request being sent */
    char in[65536];
    size_t len;      /* bytes of the answer received so far */
    size_t body;     /* offset of its body */
    uint64_t length; /* of the body, as announced */
    uint32_t status;
};

void web_open(struct web *w, uint32_t port, const char *key);
void web_close(struct web *w);

/* Sends the head of a request whose body has `length` bytes, and resets the answer. */
void web_send_head(struct web *w, const char *method, const char *path, uint64_t length);
void web_send(const struct web *w, const void *data, size_t len);

/* Reads up to the end of the head; the received part of the body follows it in the buffer. */
void web_read_head(struct web *w);

/* A request with its body, and later its complete answer, which must be small; the body of the
 * answer is returned. */
void web_ask(struct web *w, const char *method, const char *path, const char *body);
const char *web_answer(struct web *w);

/* One complete exchange. The answer must have this status, and its body, which must be small, is
 * returned. */
const char *web_call(struct web *w, const char *method, const char *path, const char *body, uint32_t status);
