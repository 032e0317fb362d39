/* route.h - finds the row of the route tables for a method and a path.
 *
 * Patterns are parsed once. For a path without a pattern the nearest pattern is available for the
 * error message; for a path with a pattern but another method, the allowed methods are returned. */
#pragma once

#include "server/http/http.h"
#include "server/http/uri.h"

#define ROUTE_PARAMS_MAX 6

struct router;

/* Aborts if a pattern breaks the rules of http.h: that is a bug in the table. */
struct router *router_new(const struct http_tables *tables);
void router_free(struct router *r);
DEFINE_AUTO(router, router_free);

struct route_match {
    const struct http_route *route; /* NULL: not found; allowed_methods is not 0 if the path is known */
    void *ctx;                      /* for the handler of the route */
    unsigned allowed_methods;       /* methods of the path, as bits of route_method_bit() */
    struct {
        const char *name; /* points into the pattern */
        size_t len;
        size_t seg; /* index of its segment, or of the first segment of the rest */
        bool rest;
    } param[ROUTE_PARAMS_MAX];
    size_t nparams;
};

/* HEAD uses the GET row unless it has its own. */
void router_find(const struct router *r, const char *method, const struct uri *u, struct route_match *ret);
const char *router_nearest_pattern(const struct router *r, const struct uri *u); /* a pattern with GET, or NULL */

/* All methods that a row may have. */
#define ROUTE_METHODS 0x7fu
/* The bit of a method that this server knows; 0 for others, for example CONNECT. */
unsigned route_method_bit(const char *method);
/* "GET, HEAD, OPTIONS" for Allow. buf needs 64 bytes and is returned. */
char *route_allow_text(unsigned methods, char buf[64]);
/* Joins the segments of {name*} with slashes; `out` needs as many bytes as `mem` of uri_parse(). */
void route_join_rest(const struct uri *u, size_t from, char *out);
