/* origin.h - who a request says it is meant for (Host) and which page it comes from (Origin).
 *
 * A web page may make its visitor's browser send requests to any address, also to one that its own name was made to
 * point to (DNS rebinding). The browser tells the truth in both headers, so both are held against lists. */
#pragma once

#include "core/base/err.h"

/* A Host header: "name", "name:port", "1.2.3.4:80", "[::1]:80". */
struct origin_host {
    char name[256]; /* lower case, without brackets */
    bool literal;   /* an address */
};
int origin_parse_host(const char *value, struct origin_host *ret, struct err *err);

/* Lists end in NULL and may be NULL themselves. */
int origin_check_host(const char *value, const char *const *hosts, struct err *err);
/* True when pages of this origin may call: it is in the list, or it is of this very Host, by http or https. Over TLS by
 * https only: anybody on the way could make a page of the other. */
bool origin_allowed(const char *origin, const char *host, bool tls, const char *const *origins);
