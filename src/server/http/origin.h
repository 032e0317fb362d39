/* origin.h - the server that a request is addressed to (Host) and the page that it comes from
 * (Origin).
 *
 * A web page can make its visitor's browser send requests to any address, including an address to
 * which the page's own name was made to point (DNS rebinding). The browser sets both headers
 * truthfully, so both are compared with lists. */
#pragma once

#include "core/base/err.h"

/* A Host header: "name", "name:port", "1.2.3.4:80", "[::1]:80". */
struct origin_host {
    char name[256]; /* lower case, without brackets */
    bool literal;   /* the name is an IP address */
};
int origin_parse_host(const char *value, struct origin_host *ret, struct err *err);

/* Lists are NULL-terminated and may be NULL. */
int origin_check_host(const char *value, const char *const *hosts, struct err *err);
/* Returns true if pages of this origin may call the server: the origin is in the list, or it equals
 * Host, with http or https. Over TLS only https is accepted: an attacker on the network could serve
 * a page over http. */
bool origin_allowed(const char *origin, const char *host, bool tls, const char *const *origins);
