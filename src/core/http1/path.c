/* One pass over the segments. A segment is decoded before it is compared with "." and "..", because
 * servers do it in this order; each separator of the result is a separator of the request, because
 * encoded ones are refused. */
#include "core/http1/path.h"

#include "core/http1/grammar.h"

/* Two hex digits at s, or -1. */
static int path_encoded_byte(const char *s, const char *end)
{
    int high = end - s >= 2 ? http1_hex_digit((unsigned char)s[0]) : -1;
    int low = high >= 0 ? http1_hex_digit((unsigned char)s[1]) : -1;

    return low >= 0 ? high << 4 | low : -1;
}

static int path_decode_byte(const char **s, const char *end, char *ret, struct err *err)
{
    int c = (unsigned char)*(*s)++;
    bool was_encoded = c == '%';

    if (was_encoded) {
        c = path_encoded_byte(*s, end);
        if (c < 0)
            return err_set(err, ERR_HTTP_MALFORMED, "the path has a '%%' without two hexadecimal digits");
        *s += 2;
    }
    if (c < 0x20 || c == 0x7f)
        return err_set(err, ERR_HTTP_MALFORMED, "the path has a control character");
    if (c == '\\' || (was_encoded && c == '/'))
        return err_set(err, ERR_HTTP_MALFORMED,
                       "the path has an encoded '/' or a '\\', which servers read differently");
    if (was_encoded && c == '%') {
        int twice = path_encoded_byte(*s, end);

        if (twice == '/' || twice == '.' || twice == '\\' || twice == '%' || twice == 0)
            return err_set(err, ERR_HTTP_MALFORMED,
                           "the path is percent-encoded twice, which servers read differently");
    }
    *ret = (char)c;
    return 0;
}

static int path_decode_segment(const char *s, const char *end, char **to, struct err *err)
{
    const char *from = *to;
    size_t dots = 0;

    while (s < end)
        if (path_decode_byte(&s, end, (*to)++, err) < 0)
            return -1;
    while (dots < 3 && from + dots < *to && from[dots] == '.')
        dots++;
    if ((dots == 1 || dots == 2) && from + dots < *to && from[dots] == ';')
        return err_set(err, ERR_HTTP_MALFORMED,
                       "the path has a ';' after a dot segment, which servers read differently");
    return 0;
}

static bool path_is_segment(const char *from, const char *to, const char *segment)
{
    return (size_t)(to - from) == strlen(segment) && memcmp(from, segment, strlen(segment)) == 0;
}

/* Writes to `out`, which has room for the path, and returns the end; NULL: refused. */
static char *path_write(struct http1_text path, char *out, struct err *err)
{
    const char *s = path.data, *end = path.data + path.len, *segment_end;
    char *root = out, *to = out;

    for (*to++ = '/'; s < end; s = segment_end) {
        char *segment = to; /* after a '/', as at the begin of each turn */

        s++;
        segment_end = memchr(s, '/', (size_t)(end - s));
        if (!segment_end)
            segment_end = end;
        if (s == segment_end && s < end) {
            err_set(err, ERR_HTTP_MALFORMED, "the path has '//', which servers read differently");
            return NULL;
        }
        if (path_decode_segment(s, segment_end, &to, err) < 0)
            return NULL;
        if (path_is_segment(segment, to, "..")) {
            if (segment == root + 1) {
                err_set(err, ERR_HTTP_MALFORMED, "the path leaves the root with '..'");
                return NULL;
            }
            for (to = segment - 1; to[-1] != '/';)
                to--;
        } else if (path_is_segment(segment, to, ".")) {
            to = segment;
        } else if (segment_end < end) {
            *to++ = '/';
        }
    }
    return to;
}

int http1_path_normalize(struct http1_text path, struct buf *ret, struct err *err)
{
    if (path.len > HTTP1_HEAD_MAX || (path.len > 0 && path.data[0] != '/'))
        return err_set(err, ERR_HTTP_MALFORMED, "the path does not begin with '/'");
    char *room = buf_room(ret, path.len + 1), *end = path_write(path, room, err);
    if (!end)
        room[0] = '\0';
    else
        *end = '\0';
    ret->len += end ? (size_t)(end - room) : 0;
    return end ? 0 : -1;
}
