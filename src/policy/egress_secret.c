#include "policy/egress_secret.h"

#include "core/base/str.h"
#include "policy/egress_request_match.h"
#include "policy/egress_rule_target.h"

static char egress_secret_lower(char c)
{
    return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c;
}

static char egress_secret_upper(char c)
{
    return c >= 'a' && c <= 'z' ? (char)(c - 'a' + 'A') : c;
}

int egress_secret_set_name(struct egress_secret_rule *s, const char *name, size_t len, struct err *err)
{
    if (len == 0 || len >= sizeof(s->name))
        return err_set(err, ERR_EGRESS_RULE, "the name of a secret has 1 to %zu characters", sizeof(s->name) - 1);
    for (size_t i = 0; i < len; i++) {
        char c = egress_secret_lower(name[i]);

        if (!((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || (i > 0 && (c == '-' || c == '_'))))
            return err_set(err, ERR_EGRESS_RULE,
                           "secret '%.*s': a name has letters, digits, '-' and '_', and begins with a letter or digit",
                           (int)len, name);
        s->name[i] = c;
    }
    s->name[len] = '\0';
    return 0;
}

int egress_secret_set_host(struct egress_secret_rule *s, const char *text, size_t len, struct err *err)
{
    const char *colon = memchr(text, ':', len), *p = colon ? colon + 1 : NULL;

    s->port = 443;
    if (colon && (!egress_rule_target_eat_port(&p, text + len, &s->port) || p != text + len))
        return err_set(err, ERR_EGRESS_RULE, "secret %s: '%.*s' is not a host name, or a host name and a port", s->name,
                       (int)min_size(len, 100), text);
    if (hostname_normalize(text, colon ? (size_t)(colon - text) : len, s->host, err) < 0) {
        if (err)
            err->id = ERR_EGRESS_RULE;
        return err_wrap(err, "secret %s", s->name);
    }
    if (str_ends(s->host, EGRESS_SECRET_SUFFIX))
        return err_set(err, ERR_EGRESS_RULE, "secret %s: name the host that gets the secret, not %.100s", s->name,
                       s->host);
    return 0;
}

static bool egress_secret_is_token_char(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           (c && strchr("!#$%&'*+-.^_`|~", c));
}

/* The letter case is that of "Content-Type", so that a header has one spelling. */
int egress_secret_set_header(struct egress_secret_rule *s, const char *name, size_t len, struct err *err)
{
    /* They frame the message, name the server, or belong to one connection. */
    static const char *const refused[] = {
        "Connection", "Content-Encoding", "Content-Length",    "Content-Type", "Expect", "Host", "Keep-Alive",
        "Te",         "Trailer",          "Transfer-Encoding", "Upgrade",
    };

    if (len == 0 || len >= sizeof(s->header))
        return err_set(err, ERR_EGRESS_RULE, "secret %s: the name of a header has 1 to %zu characters", s->name,
                       sizeof(s->header) - 1);
    for (size_t i = 0; i < len; i++) {
        if (!egress_secret_is_token_char(name[i]))
            return err_set(err, ERR_EGRESS_RULE, "secret %s: '%.*s' is not the name of a header", s->name, (int)len,
                           name);
        s->header[i] = i == 0 || name[i - 1] == '-' ? egress_secret_upper(name[i]) : egress_secret_lower(name[i]);
    }
    s->header[len] = '\0';
    bool is_refused = str_starts(s->header, "Proxy-");
    for (size_t i = 0; i < ARRAY_LEN(refused); i++)
        is_refused |= str_eq(s->header, refused[i]);
    if (is_refused)
        return err_set(err, ERR_EGRESS_RULE,
                       "secret %s: header %s cannot carry a secret; use Authorization or a header like X-Api-Key",
                       s->name, s->header);
    return 0;
}

int egress_secret_set_format(struct egress_secret_rule *s, const char *format, struct err *err)
{
    const char *place = strstr(format, "{}");
    size_t n = strlen(format);

    for (size_t i = 0; i < n; i++)
        if (format[i] < 0x20 || format[i] > 0x7e)
            return err_set(err, ERR_EGRESS_RULE, "secret %s: byte %zu of the format is not printable ASCII", s->name,
                           i + 1);
    if (!place || strstr(place + 2, "{}"))
        return err_set(err, ERR_EGRESS_RULE,
                       "secret %s: the format must contain {} once, where the value goes, like 'Bearer {}'", s->name);
    if (format[0] == ' ' || format[n - 1] == ' ')
        return err_set(err, ERR_EGRESS_RULE, "secret %s: the format begins or ends with a space", s->name);
    if (!str_copy(s->format, sizeof(s->format), format))
        return err_set(err, ERR_EGRESS_RULE, "secret %s: the format has more than %zu characters", s->name,
                       sizeof(s->format) - 1);
    return 0;
}

void egress_secret_set_defaults(struct egress_secret_rule *s)
{
    if (!s->header[0])
        str_copy(s->header, sizeof(s->header), "Authorization");
    if (!s->format[0])
        str_copy(s->format, sizeof(s->format), str_eq(s->header, "Authorization") ? "Bearer {}" : "{}");
}

void egress_secret_write(const struct egress_secret_rule *s, struct buf *out)
{
    buf_addf(out, "secret %s %s:%u header=%s format=", s->name, s->host, s->port, s->header);
    for (const char *p = s->format; *p; p++)
        if (*p == ' ' || *p == '%')
            buf_addf(out, "%%%02X", (unsigned char)*p);
        else
            buf_add(out, p, 1);
    egress_request_match_write(&s->request, out);
}
