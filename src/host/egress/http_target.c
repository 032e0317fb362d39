#include "host/egress/http_target.h"

#include "core/base/str.h"

int http_target_from_authority(const struct http1_authority *a, uint16_t default_port, struct http_target *ret,
                               struct err *err)
{
    *ret = (struct http_target){ .port = a->port ? a->port : default_port };
    if (ip_address_parse(a->host.data, a->host.len, &ret->address)) {
        if ((ret->address.family == 6) == a->is_ipv6)
            return 0;
        return err_set(err, ERR_HTTP_MALFORMED, "the host is not a well-formed address");
    }
    if (a->is_ipv6)
        return err_set(err, ERR_HTTP_MALFORMED, "the host is not a well-formed address");
    ret->address = (struct ip_address){ 0 };
    return hostname_normalize(a->host.data, a->host.len, ret->host, err);
}

int http_target_of_proxy_request(const struct http1_request *r, struct http_target *ret, struct err *err)
{
    if (r->host_differs)
        return err_set(err, ERR_HTTP_MALFORMED, "the request and its field Host name different targets");
    if (r->form == HTTP1_FORM_AUTHORITY)
        return http_target_from_authority(&r->authority, 0, ret, err);
    if (r->form != HTTP1_FORM_ABSOLUTE)
        return err_set(err, ERR_HTTP_MALFORMED,
                       "a request to the proxy needs a whole URL, http://HOST/PATH, or CONNECT");
    if (!http1_text_is_nocase(r->scheme, "http"))
        return err_set(err, ERR_HTTP_MALFORMED, "the proxy forwards http:// URLs; use CONNECT for others");
    return http_target_from_authority(&r->authority, 80, ret, err);
}

int http_target_check_bound(const struct http1_request *r, const struct http_target *bound, struct err *err)
{
    struct http_target host;

    if (r->form != HTTP1_FORM_ORIGIN && r->form != HTTP1_FORM_ASTERISK)
        return err_set(err, ERR_HTTP_MALFORMED, "the request has the form of a request to a proxy");
    if (r->host.host.len == 0 && r->is_http10)
        return 0;
    if (http_target_from_authority(&r->host, bound->port, &host, err) < 0)
        return -1;
    if (!str_eq(host.host, bound->host) || !ip_address_equal(&host.address, &bound->address) ||
        host.port != bound->port)
        return err_set(err, ERR_HTTP_HOST, "the field Host names another host than the connection");
    return 0;
}
