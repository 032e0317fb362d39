/* http_target.h - where a request wants to go. */
#pragma once

#include "core/http1/head.h"
#include "policy/hostname.h"
#include "policy/ip_address.h"

struct http_target {
    char host[HOSTNAME_MAX + 1]; /* normalised; "": only the address is known */
    struct ip_address address;   /* if host is "" */
    uint16_t port;
};

/* A name, or an address. Anything that other parsers take for an address in disguise is refused. */
int http_target_from_authority(const struct http1_authority *a, uint16_t default_port, struct http_target *ret,
                               struct err *err);
/* Of a request to the proxy: the authority of CONNECT, or of an absolute target. */
int http_target_of_proxy_request(const struct http1_request *r, struct http_target *ret, struct err *err);
/* Of a request on a connection to `bound`: nothing in it may name another host or port. */
int http_target_check_bound(const struct http1_request *r, const struct http_target *bound, struct err *err);
