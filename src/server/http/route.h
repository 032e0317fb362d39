/* route.h - finds the row of the route tables that a method and a path belong to.
 *
 * The patterns are taken apart once. A path that no pattern fits gets the nearest pattern for the message, one that
 * fits but not with this method gets the methods that do. */
#pragma once

#include "server/http/http.h"
#include "server/http/uri.h"

#define ROUTE_PARAMS_MAX 6

struct router;

/* A pattern that breaks the rules of http.h is our bug, and aborts. */
struct router *router_new(const struct http_route *const *tables);
void router_free(struct router *r);
DEFINE_AUTO(router, router_free);

struct route_match {
    const struct http_route *route; /* NULL: `allow` says whether the path at least is known */
    unsigned allowed_methods;       /* methods that the path has: bits of route_method_bit() */
    struct {
        const char *name; /* in the pattern */
        size_t len;
        size_t seg; /* the segment that it took, or the first of the rest */
        bool rest;
    } param[ROUTE_PARAMS_MAX];
    size_t nparams;
};

/* HEAD is found under GET unless it has a row of its own. */
void router_find(const struct router *r, const char *method, const struct uri *u, struct route_match *ret);
const char *router_nearest_pattern(const struct router *r, const struct uri *u); /* a pattern, or NULL */

/* Every method that a row may have. */
#define ROUTE_METHODS 0x7fu
/* The bit of a method that this server knows, 0 for others (CONNECT is one). */
unsigned route_method_bit(const char *method);
/* "GET, HEAD, OPTIONS" for Allow. buf needs 64 bytes and is returned. */
char *route_allow_text(unsigned methods, char buf[64]);
/* The segments of {name*} with slashes between; `out` has the room that uri_parse() had. */
void route_join_rest(const struct uri *u, size_t from, char *out);
