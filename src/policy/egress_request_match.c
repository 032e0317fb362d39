#include "policy/egress_request_match.h"

#include "core/base/str.h"

#include <strings.h>

const char *const egress_methods[] = { "GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", NULL };

static int egress_request_match_add_method(uint32_t *methods, const char *name, size_t len, struct err *err)
{
    for (unsigned i = 0; egress_methods[i]; i++)
        if (strlen(egress_methods[i]) == len && strncasecmp(egress_methods[i], name, len) == 0) {
            *methods |= 1u << i;
            return 0;
        }
    return err_set(err, ERR_EGRESS_RULE,
                   "method '%.*s' is not known; methods are GET, HEAD, POST, PUT, PATCH, DELETE and OPTIONS",
                   (int)min_size(len, 40), name);
}

int egress_request_match_set_methods(struct egress_request_match *m, const char *text, size_t len, struct err *err)
{
    uint32_t methods = 0;

    for (size_t at = 0;;) {
        const char *comma = memchr(text + at, ',', len - at);
        size_t n = comma ? (size_t)(comma - text) - at : len - at;

        if (egress_request_match_add_method(&methods, text + at, n, err) < 0)
            return -1;
        if (!comma)
            break;
        at += n + 1;
    }
    m->methods = methods;
    return 0;
}

static int egress_path_hex(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    if (c >= 'A' && c <= 'F')
        return c - 'A' + 10;
    return -1;
}

static int egress_path_decode_percent(const char *text, size_t len, struct buf *out, struct err *err)
{
    for (size_t i = 0; i < len; i++) {
        unsigned char c = (unsigned char)text[i];

        if (c == '%') {
            int high = i + 2 < len ? egress_path_hex(text[i + 1]) : -1;
            int low = i + 2 < len ? egress_path_hex(text[i + 2]) : -1;

            if (high < 0 || low < 0)
                return err_set(err, ERR_EGRESS_RULE, "path: '%%' at byte %zu is not followed by two hexadecimal digits",
                               i + 1);
            c = (unsigned char)(high << 4 | low);
            i += 2;
            if (c == '/')
                return err_set(err, ERR_EGRESS_RULE, "path: it has an encoded slash, which servers read differently");
        } else if (c == '?' || c == '#')
            return err_set(err, ERR_EGRESS_RULE, "path: a rule sees only the path; remove '%c' and the text after it",
                           c);
        if (c < 0x20 || c == 0x7f)
            return err_set(err, ERR_EGRESS_RULE, "path: byte %zu is a control character", i + 1);
        if (c == '\\')
            return err_set(err, ERR_EGRESS_RULE, "path: it has a backslash, which servers read differently");
        buf_add(out, &c, 1);
    }
    return 0;
}

/* `path` is decoded, so that "%2e%2e" is found too. */
static int egress_path_check_segments(const char *path, struct err *err)
{
    for (const char *segment = path + 1;;) {
        size_t n = strcspn(segment, "/");

        if (n == 0 && segment[0])
            return err_set(err, ERR_EGRESS_RULE,
                           "path: it has an empty segment ('//'), which servers read differently");
        if ((n == 1 && segment[0] == '.') || (n == 2 && segment[0] == '.' && segment[1] == '.'))
            return err_set(err, ERR_EGRESS_RULE,
                           "path: it has a dot segment, which servers read differently; resolve it first");
        if (!segment[n])
            return 0;
        segment += n + 1;
    }
}

/* A rule could never match the paths that are refused here, because http1_path_normalize() refuses
 * or changes them. */
static int egress_path_decode(const char *target, size_t len, struct buf *out, struct err *err)
{
    auto_buf path = { 0 };

    if (len == 0 || target[0] != '/')
        return err_set(err, ERR_EGRESS_RULE, "path: it must begin with '/'");
    if (egress_path_decode_percent(target, len, &path, err) < 0 || egress_path_check_segments(path.data, err) < 0)
        return -1;
    buf_add(out, path.data, path.len);
    return 0;
}

void egress_request_match_write_path(const struct egress_request_match *m, struct buf *out)
{
    for (const char *p = m->path; *p; p++) {
        unsigned char c = (unsigned char)*p;

        if (c <= 0x20 || c >= 0x7f || strchr("%?#", c))
            buf_addf(out, "%%%02X", c);
        else
            buf_add(out, p, 1);
    }
}

int egress_request_match_set_path(struct egress_request_match *m, const char *text, size_t len, struct err *err)
{
    auto_buf path = { 0 };

    if (egress_path_decode(text, len, &path, err) < 0)
        return -1;
    const char *star = strchr(path.data, '*');
    if (star && (star[1] || text[len - 1] != '*'))
        return err_set(err, ERR_EGRESS_RULE, "path: '*' is permitted only as the last character");
    if (!str_copy(m->path, sizeof(m->path), path.data))
        return err_set(err, ERR_EGRESS_RULE, "path: it has more than %d bytes", EGRESS_RULE_PATH_MAX);
    return 0;
}

void egress_request_match_write(const struct egress_request_match *m, struct buf *out)
{
    const char *between = " methods=";

    for (unsigned i = 0; egress_methods[i]; i++)
        if (m->methods & 1u << i) {
            buf_addf(out, "%s%s", between, egress_methods[i]);
            between = ",";
        }
    if (m->path[0]) {
        buf_adds(out, " path=");
        egress_request_match_write_path(m, out);
    }
}

bool egress_request_match_is_empty(const struct egress_request_match *m)
{
    return !m->methods && !m->path[0];
}

/* Letter case of the method is ignored: a server that ignores it too must not receive what a rule
 * refuses. */
bool egress_request_matches(const struct egress_request_match *m, const char *method, const char *path)
{
    size_t n = strlen(m->path);
    bool known = m->methods == 0;

    for (unsigned i = 0; egress_methods[i] && !known; i++)
        known = m->methods & 1u << i && strcasecmp(egress_methods[i], method) == 0;
    if (!known || n == 0)
        return known;
    return m->path[n - 1] == '*' ? strncmp(m->path, path, n - 1) == 0 : str_eq(m->path, path);
}
