/* One pass copies the target into the caller's memory and decodes it at the same time: decoded text
 * is never longer than its source, and each separator leaves one byte for the NUL of the text
 * before it. */
#include "server/http/uri.h"

#include "core/base/str.h"

static int uri_hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

static bool uri_is_utf8(const char *s)
{
    size_t left = strlen(s);
    uint32_t c;

    for (size_t n; left > 0; s += n, left -= n) {
        n = (unsigned char)*s < 0x80 ? 1 : str_utf8(s, left, &c);
        if (n == 0)
            return false;
    }
    return true;
}

/* Decodes from *p up to one of the characters in `stops` or the end, and leaves *p there. */
static int uri_decode_part(const char **p, const char *stops, bool plus, char **out, struct err *err)
{
    char *begin = *out;
    const char *s = *p;

    for (; *s && !strchr(stops, *s); s++) {
        unsigned char c = (unsigned char)*s;

        if (c <= 0x20 || c >= 0x7f || c == '#')
            return err_set(err, ERR_HTTP_MALFORMED, "the target has a character that must be percent-encoded");
        if (c == '%') {
            int high = uri_hex_digit(s[1]), low = high < 0 ? -1 : uri_hex_digit(s[2]);

            if (low < 0)
                return err_set(err, ERR_HTTP_MALFORMED,
                               "the target has a %% that is not followed by two hexadecimal digits");
            c = (unsigned char)(high * 16 + low);
            if (c == 0)
                return err_set(err, ERR_HTTP_MALFORMED, "the target has an encoded NUL");
            s += 2;
        } else if (plus && c == '+') {
            c = ' ';
        }
        *(*out)++ = (char)c;
    }
    *(*out)++ = '\0';
    *p = s;
    return uri_is_utf8(begin) ? 0 : err_set(err, ERR_HTTP_MALFORMED, "the target does not decode to UTF-8");
}

/* No part between slashes, including encoded slashes, may be empty, `.` or `..`. */
static int uri_check_segment(const char *seg, struct err *err)
{
    for (const char *p = seg;; p++) {
        size_t n = strcspn(p, "/");

        if (n == 0)
            return err_set(err, ERR_HTTP_MALFORMED, "the path has an empty segment");
        if ((n == 1 && p[0] == '.') || (n == 2 && p[0] == '.' && p[1] == '.'))
            return err_set(err, ERR_HTTP_MALFORMED, "the path has a segment . or ..");
        p += n;
        if (!*p)
            return 0;
    }
}

static int uri_parse_path(const char **p, char **out, struct uri *u, struct err *err)
{
    if (**p != '/')
        return err_set(err, ERR_HTTP_MALFORMED, "the target does not begin with a slash");
    while (**p == '/') {
        ++*p;
        if (**p == '\0' || **p == '?') {
            u->trailing_slash = true;
            return 0;
        }
        if (u->nsegs == URI_SEGMENTS_MAX)
            return err_set(err, ERR_HTTP_URI_LONG, "the path has more than %d segments", URI_SEGMENTS_MAX);
        u->seg[u->nsegs] = *out;
        if (uri_decode_part(p, "/?", false, out, err) < 0 || uri_check_segment(u->seg[u->nsegs], err) < 0)
            return -1;
        u->nsegs++;
    }
    return 0;
}

/* Filters of lists, of which every value counts. */
static bool uri_may_repeat(const char *name)
{
    static const char *const names[] = { "metadata", "outcome", "state" };

    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        if (str_eq(name, names[i]))
            return true;
    return false;
}

static int uri_add_query_pair(struct uri *u, const char *name, const char *value, struct err *err)
{
    if (!uri_may_repeat(name) && uri_query(u, name))
        return err_set(err, ERR_INVALID, "the query has the parameter '%.60s' twice", name);
    if (u->nquery == URI_QUERY_MAX)
        return err_set(err, ERR_HTTP_URI_LONG, "the query has more than %d parameters", URI_QUERY_MAX);
    u->query[u->nquery++] = (struct uri_query_pair){ name, value };
    return 0;
}

static int uri_parse_query(const char *p, char **out, struct uri *u, struct err *err)
{
    for (; *p; p += *p == '&') {
        const char *name = *out, *value = "";

        if (*p == '&')
            continue;
        if (uri_decode_part(&p, "=&", true, out, err) < 0)
            return -1;
        if (*p == '=') {
            p++;
            value = *out;
            if (uri_decode_part(&p, "&", true, out, err) < 0)
                return -1;
        }
        if (uri_add_query_pair(u, name, value, err) < 0)
            return -1;
    }
    return 0;
}

int uri_parse(const char *target, char *mem, struct uri *ret, struct err *err)
{
    const char *p = target;
    char *out = mem;

    ret->nsegs = ret->nquery = 0;
    ret->trailing_slash = false;
    if (uri_parse_path(&p, &out, ret, err) < 0)
        return -1;
    if (*p == '?')
        return uri_parse_query(p + 1, &out, ret, err);
    return 0;
}

const char *uri_query(const struct uri *u, const char *name)
{
    for (size_t i = 0; i < u->nquery; i++)
        if (str_eq(u->query[i].name, name))
            return u->query[i].value;
    return NULL;
}
