/* origin.h - the connection to a server that HTTP requests are forwarded to, plain or with TLS. */
#pragma once

#include "core/ev/ev.h"
#include "host/egress/tls_upstream.h"

enum origin_event {
    ORIGIN_OPEN = 1, /* once, first: requests can be written */
    ORIGIN_READABLE = 2,
    ORIGIN_WRITABLE = 4,
    ORIGIN_FAILED = 8, /* once, in place of OPEN: origin_failure() says why */
};
/* Called by the loop only. The callee may free the origin. */
typedef void origin_fn(void *arg, unsigned events);

enum origin_io { ORIGIN_BROKEN = -1, ORIGIN_AGAIN = 0, ORIGIN_OK = 1, ORIGIN_END = 2 };

struct origin;
/* Takes the connected descriptor. `authorities`: NULL is a plain connection; otherwise TLS to
 * `host`. */
int origin_new(struct ev *ev, int fd, struct tls_authorities *authorities, const char *host, origin_fn *fn, void *arg,
               struct origin **ret, struct err *err);
void origin_free(struct origin *o); /* NULL is accepted */
void origin_want(struct origin *o, bool reads, bool writes);
enum origin_io origin_read(struct origin *o, void *to, size_t room, size_t *ret_n);
enum origin_io origin_write(struct origin *o, const void *data, size_t n, size_t *ret_n);
int origin_fd(const struct origin *o); /* of a plain one; -1: TLS */
int origin_take_fd(struct origin *o);  /* of a plain connection; then free it */
const char *origin_failure(const struct origin *o);
