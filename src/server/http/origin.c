/* Literal addresses are always accepted: DNS rebinding needs a name, because only a name can be
 * made to point elsewhere. */
#include "server/http/origin.h"

#include "core/base/str.h"

#include <arpa/inet.h>
#include <strings.h>

static bool origin_is_name_char(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '.' ||
           c == '_';
}

static bool origin_parse_port(const char *p)
{
    uint32_t port;

    if (*p == '\0')
        return true;
    return str_eat(&p, ":") && str_eat_u32(&p, 65535, &port) && *p == '\0';
}

static bool origin_copy_lower(struct origin_host *ret, const char *s, size_t n)
{
    if (n == 0 || n >= sizeof(ret->name))
        return false;
    for (size_t i = 0; i < n; i++)
        ret->name[i] = (char)(s[i] >= 'A' && s[i] <= 'Z' ? s[i] + 'a' - 'A' : s[i]);
    ret->name[n] = '\0';
    return true;
}

static bool origin_parse_bracketed(const char *value, struct origin_host *ret)
{
    const char *end = strchr(value, ']');
    struct in6_addr addr;

    ret->literal = true;
    return end && origin_copy_lower(ret, value + 1, (size_t)(end - value - 1)) &&
           inet_pton(AF_INET6, ret->name, &addr) == 1 && origin_parse_port(end + 1);
}

static bool origin_parse_name(const char *value, struct origin_host *ret)
{
    struct in_addr addr;
    size_t n = 0;

    while (origin_is_name_char(value[n]))
        n++;
    if (value[0] == '.' || !origin_copy_lower(ret, value, n) || !origin_parse_port(value + n))
        return false;
    ret->literal = inet_pton(AF_INET, ret->name, &addr) == 1;
    return true;
}

int origin_parse_host(const char *value, struct origin_host *ret, struct err *err)
{
    if (value[0] == '[' ? origin_parse_bracketed(value, ret) : origin_parse_name(value, ret))
        return 0;
    return err_set(err, ERR_HTTP_MALFORMED, "the Host header is neither a name nor an address");
}

int origin_check_host(const char *value, const char *const *hosts, struct err *err)
{
    struct origin_host host;

    if (origin_parse_host(value, &host, err) < 0)
        return -1;
    if (host.literal || str_eq(host.name, "localhost"))
        return 0;
    for (; hosts && *hosts; hosts++)
        if (str_eq(*hosts, "*") || strcasecmp(*hosts, host.name) == 0)
            return 0;
    return err_set(err, ERR_HTTP_HOST, "this server does not serve the name '%.100s'", host.name);
}

bool origin_allowed(const char *origin, const char *host, bool tls, const char *const *origins)
{
    const char *p = origin;

    for (; origins && *origins; origins++)
        if (str_eq(*origins, origin))
            return true;
    return host && ((!tls && str_eat(&p, "http://")) || str_eat(&p, "https://")) && strcasecmp(p, host) == 0;
}
