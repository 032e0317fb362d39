/* names_lookup.h - looks up the addresses of a name, with c-ares in the event loop.
 *
 * Only an allowed connection that is being opened asks; a query of a sandbox never leads to one. */
#pragma once

#include "core/base/err.h"
#include "core/ev/ev.h"
#include "policy/ip_address.h"

struct names_lookup;

/* `servers`: "ADDRESS[:PORT],...", or "" for those of /etc/resolv.conf. */
int names_lookup_new(struct ev *ev, const char *servers, struct names_lookup **ret, struct err *err);
void names_lookup_free(struct names_lookup *l);
DEFINE_AUTO(names_lookup, names_lookup_free);

struct names_answer {
    const struct ip_address *addresses; /* in the order of the answer */
    size_t n;                           /* 0: there is none, and `why` says why */
    const char *why;
    bool is_timeout;
    uint32_t ttl_s;
};
typedef void names_lookup_fn(void *arg, const struct names_answer *a);

struct names_query;
/* Calls fn once, never before this function has returned. */
struct names_query *names_lookup_start(struct names_lookup *l, const char *host, names_lookup_fn *fn, void *arg);
void names_lookup_cancel(struct names_query *q); /* fn is not called */
