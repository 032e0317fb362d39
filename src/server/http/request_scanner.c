/* The first parser of received bytes. The second is libmicrohttpd, which accepts a bare LF as the
 * end of a line, even in the header of a chunk, stops at a NUL, and answers requests that it
 * refuses with its own pages. So it receives only bytes that are well-formed by the rules of this
 * file, and has nothing left to refuse.
 *
 * Only lines are parsed; bodies are counted. A line that arrived whole is parsed in place, a line
 * that arrived in pieces is assembled first.
 *
 * 1. A line is bounded before it is stored: request line, head, chunk header and trailer each have
 *    a maximum size.
 * 2. `requests_ended` counts a request when its last byte was seen, and never counts a refused
 *    request.
 * 3. The daemon stores every parameter of a query and every cookie in the memory of the connection.
 *    Their number is bounded here, because the daemon would answer with its own page when that
 *    memory is full. */
#include "server/http/request_scanner.h"

#include "server/http/uri.h"

#include "core/base/str.h"

#include <strings.h>

#define CHUNK_LINE_MAX 4096u /* with extensions, which are ignored */
#define COOKIES_MAX 200u

static bool scan_is_token_char(unsigned char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           (c && strchr("!#$%&'*+-.^_`|~", c));
}

bool request_scanner_is_token(const char *s, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!scan_is_token_char((unsigned char)s[i]))
            return false;
    return n > 0;
}

bool request_scanner_is_value(const char *s, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (((unsigned char)s[i] < 0x20 && s[i] != '\t') || s[i] == 0x7f)
            return false;
    return true;
}

bool request_scanner_is_target(const char *s, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if ((unsigned char)s[i] <= 0x20 || s[i] == 0x7f)
            return false;
    return n > 0;
}

void request_scanner_init(struct request_scanner *f, const struct http_limits *lim)
{
    *f = (struct request_scanner){ .lim = lim };
}

void request_scanner_done(struct request_scanner *f)
{
    buf_done(&f->partial_line);
}

static unsigned scan_count_char(const char *s, size_t n, char c)
{
    unsigned found = 0;

    for (size_t i = 0; i < n; i++)
        found += s[i] == c;
    return found;
}

static bool scan_equals_word(const char *s, size_t n, const char *word)
{
    return n == strlen(word) && strncasecmp(s, word, n) == 0;
}

/* Whether a comma-separated list contains this word. */
static bool scan_list_has_word(const char *s, size_t n, const char *word)
{
    for (size_t i = 0, k; i < n; i = k + 1) {
        for (k = i; k < n && s[k] != ',';)
            k++;
        size_t from = i, to = k;
        while (from < to && (s[from] == ' ' || s[from] == '\t'))
            from++;
        while (to > from && (s[to - 1] == ' ' || s[to - 1] == '\t'))
            to--;
        if (scan_equals_word(s + from, to - from, word))
            return true;
    }
    return false;
}

static void scan_next_request(struct request_scanner *f)
{
    f->requests_ended++;
    f->head_bytes = 0;
    f->nheaders = 0;
    f->state = f->is_last_request ? SCAN_AFTER_LAST : SCAN_REQUEST_LINE;
    f->is_http10 = f->upgrade_requested = f->is_chunked = f->has_length = false;
    f->bytes_left = 0;
    buf_done(&f->partial_line);
}

/* lines, without their CR LF */

static int scan_request_line(struct request_scanner *f, const char *s, size_t n, struct err *err)
{
    const char *target = memchr(s, ' ', n),
               *version = target ? memchr(target + 1, ' ', n - (size_t)(target + 1 - s)) : NULL;

    if (n == 0)
        return 0; /* RFC 9112, 2.2: an empty line that an old client sends after a body */
    if (!version || !request_scanner_is_token(s, (size_t)(target - s)) ||
        !request_scanner_is_target(target + 1, (size_t)(version - target - 1)))
        return err_set(err, ERR_HTTP_MALFORMED, "the request line is not METHOD TARGET VERSION with single spaces");
    size_t len = n - (size_t)(++version - s);
    if (len != 8 || memcmp(version, "HTTP/1.", 7) != 0 || (version[7] != '0' && version[7] != '1'))
        return err_set(err, ERR_HTTP_MALFORMED, "the version is neither HTTP/1.1 nor HTTP/1.0");
    if (scan_count_char(target, (size_t)(version - target), '&') >= URI_QUERY_MAX)
        return err_set(err, ERR_HTTP_URI_LONG, "the query has more than %d parameters", URI_QUERY_MAX);
    f->is_http10 = f->is_last_request = version[7] == '0';
    f->state = SCAN_HEADERS;
    return 0;
}

static int scan_content_length(struct request_scanner *f, const char *s, size_t n, struct err *err)
{
    char digits[24];

    if (f->has_length)
        return err_set(err, ERR_HTTP_MALFORMED, "the header Content-Length occurs more than once");
    if (n == 0 || n >= sizeof(digits))
        return err_set(err, ERR_HTTP_MALFORMED, "Content-Length is not a number");
    memcpy(digits, s, n);
    digits[n] = '\0';
    if (!str_to_u64(digits, INT64_MAX, &f->bytes_left))
        return err_set(err, ERR_HTTP_MALFORMED, "Content-Length is not a number");
    f->has_length = true;
    return 0;
}

static int scan_transfer_encoding(struct request_scanner *f, const char *s, size_t n, struct err *err)
{
    if (f->is_chunked)
        return err_set(err, ERR_HTTP_MALFORMED, "the header Transfer-Encoding occurs more than once");
    if (!scan_equals_word(s, n, "chunked"))
        return err_set(err, ERR_HTTP_METHOD_UNKNOWN, "unknown transfer coding; only chunked is supported");
    f->is_chunked = true;
    return 0;
}

static int scan_known_header(struct request_scanner *f, const char *name, size_t name_len, const char *s, size_t n,
                             struct err *err)
{
    if (scan_equals_word(name, name_len, "Content-Length"))
        return scan_content_length(f, s, n, err);
    if (scan_equals_word(name, name_len, "Transfer-Encoding"))
        return scan_transfer_encoding(f, s, n, err);
    if (scan_equals_word(name, name_len, "Upgrade"))
        f->upgrade_requested = true;
    if (scan_equals_word(name, name_len, "Connection"))
        f->is_last_request = scan_list_has_word(s, n, "close") ||
                             (f->is_last_request && !scan_list_has_word(s, n, "keep-alive"));
    if (scan_equals_word(name, name_len, "Cookie") &&
        scan_count_char(s, n, ';') + scan_count_char(s, n, ',') >= COOKIES_MAX)
        return err_set(err, ERR_HTTP_HEADERS, "the request has more than %u cookies", COOKIES_MAX);
    return 0;
}

static int scan_end_of_head(struct request_scanner *f, struct err *err)
{
    if (f->is_chunked && (f->has_length || f->is_http10))
        return err_set(err, ERR_HTTP_MALFORMED, "Transfer-Encoding together with Content-Length, or in HTTP/1.0");
    f->head_bytes = 0;
    if (f->is_chunked) {
        f->state = SCAN_CHUNK_HEADER;
    } else if (f->bytes_left > 0) {
        f->state = SCAN_BODY;
    } else {
        bool agreement = f->upgrade_requested && !f->is_last_request;

        scan_next_request(f);
        if (agreement)
            f->state = SCAN_UPGRADE_PENDING;
    }
    return 0;
}

static int scan_header_line(struct request_scanner *f, const char *s, size_t n, struct err *err)
{
    const char *colon = memchr(s, ':', n);
    bool trailer = f->state == SCAN_TRAILER;

    if (n == 0) {
        if (!trailer)
            return scan_end_of_head(f, err);
        scan_next_request(f);
        return 0;
    }
    if (s[0] == ' ' || s[0] == '\t' || !colon)
        return err_set(err, ERR_HTTP_MALFORMED, "the request has a line that is folded or is not a header");
    if (!request_scanner_is_token(s, (size_t)(colon - s)))
        return err_set(err, ERR_HTTP_MALFORMED, "the request has a header whose name is not a token");
    const char *value = colon + 1, *end = s + n;
    while (value < end && (*value == ' ' || *value == '\t'))
        value++;
    while (end > value && (end[-1] == ' ' || end[-1] == '\t'))
        end--;
    if (!request_scanner_is_value(value, (size_t)(end - value)))
        return err_set(err, ERR_HTTP_MALFORMED, "the request has a control character in a header");
    if (++f->nheaders > f->lim->headers_max)
        return err_set(err, ERR_HTTP_HEADERS, "the request has more than %u headers", f->lim->headers_max);
    return trailer ? 0 : scan_known_header(f, s, (size_t)(colon - s), value, (size_t)(end - value), err);
}

static int scan_hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

static int scan_chunk_line(struct request_scanner *f, const char *s, size_t n, struct err *err)
{
    uint64_t size = 0;
    size_t i = 0;

    for (; i < n && scan_hex_digit(s[i]) >= 0; i++) {
        if (size > INT64_MAX >> 4)
            return err_set(err, ERR_HTTP_MALFORMED, "a chunk is too large");
        size = size << 4 | (uint64_t)scan_hex_digit(s[i]);
    }
    if (i == 0 || (i < n && s[i] != ';') || !request_scanner_is_value(s + i, n - i))
        return err_set(err, ERR_HTTP_MALFORMED, "a chunk does not begin with its size");
    f->bytes_left = size;
    f->state = size > 0 ? SCAN_CHUNK_DATA : SCAN_TRAILER;
    return 0;
}

static int scan_complete_line(struct request_scanner *f, const char *s, size_t n, struct err *err)
{
    switch (f->state) {
    case SCAN_REQUEST_LINE:
        return scan_request_line(f, s, n, err);
    case SCAN_CHUNK_HEADER:
        return scan_chunk_line(f, s, n, err);
    case SCAN_CHUNK_END:
        f->state = SCAN_CHUNK_HEADER;
        return n == 0 ? 0 : err_set(err, ERR_HTTP_MALFORMED, "a chunk is longer than its size");
    default:
        return scan_header_line(f, s, n, err);
    }
}

/* Whether a line of n bytes, including its end, is within the limits. */
static int scan_check_line_size(const struct request_scanner *f, size_t n, struct err *err)
{
    const struct http_limits *lim = f->lim;

    switch (f->state) {
    case SCAN_CHUNK_HEADER:
        return n <= CHUNK_LINE_MAX ? 0 : err_set(err, ERR_HTTP_MALFORMED, "a chunk's header is too long");
    case SCAN_CHUNK_END:
        return n <= 2 ? 0 : err_set(err, ERR_HTTP_MALFORMED, "a chunk is longer than its size");
    default:
        if (f->state == SCAN_REQUEST_LINE && n > lim->line_max + 2)
            return err_set(err, ERR_HTTP_URI_LONG, "the request line is longer than %zu bytes", lim->line_max);
        if (n > lim->head_max || f->head_bytes > lim->head_max - n)
            return err_set(err, ERR_HTTP_HEADERS, "the head of the request is larger than %zu bytes", lim->head_max);
        return 0;
    }
}

/* Reads as much of a line as is available. Returns the number of bytes, or -1. */
static ssize_t scan_partial_line(struct request_scanner *f, const char *data, size_t n, struct err *err)
{
    const char *lf = memchr(data, '\n', n), *line = data;
    size_t used = lf ? (size_t)(lf - data) + 1 : n, len = f->partial_line.len + used;

    if (scan_check_line_size(f, len, err) < 0)
        return -1;
    if (!lf || f->partial_line.len > 0) {
        buf_add(&f->partial_line, data, used);
        line = f->partial_line.data;
    }
    if (!lf)
        return (ssize_t)used;
    if (len < 2 || line[len - 2] != '\r')
        return err_set(err, ERR_HTTP_MALFORMED, "the request has a line that does not end in CR LF");
    f->head_bytes += f->state == SCAN_CHUNK_HEADER || f->state == SCAN_CHUNK_END ? 0 : len;
    if (scan_complete_line(f, line, len - 2, err) < 0)
        return -1;
    buf_clear(&f->partial_line);
    return (ssize_t)used;
}

static ssize_t scan_body_bytes(struct request_scanner *f, size_t n)
{
    size_t used = f->bytes_left < n ? (size_t)f->bytes_left : n;

    f->bytes_left -= used;
    if (f->bytes_left == 0 && f->state == SCAN_CHUNK_DATA)
        f->state = SCAN_CHUNK_END;
    else if (f->bytes_left == 0)
        scan_next_request(f);
    return (ssize_t)used;
}

int request_scanner_scan(struct request_scanner *f, const char *data, size_t n, size_t *ret_n, struct err *err)
{
    size_t at = 0, begun = 0; /* offset at which the current request began */
    uint64_t ended = f->requests_ended;

    while (at < n && f->state != SCAN_UPGRADE_PENDING && f->state != SCAN_AFTER_LAST) {
        bool counted = f->state == SCAN_BODY || f->state == SCAN_CHUNK_DATA;
        ssize_t used = counted ? scan_body_bytes(f, n - at) : scan_partial_line(f, data + at, n - at, err);

        if (used < 0) {
            f->state = SCAN_REFUSED;
            *ret_n = begun;
            return -1;
        }
        at += (size_t)used;
        if (f->requests_ended != ended) {
            ended = f->requests_ended;
            begun = at;
        }
    }
    f->trailing_bytes |= f->state == SCAN_UPGRADE_PENDING && at < n;
    *ret_n = f->state == SCAN_UPGRADE_PENDING ? n : at;
    return 0;
}

bool request_scanner_upgrade_declined(struct request_scanner *f)
{
    bool clean = !f->trailing_bytes;

    if (f->state == SCAN_UPGRADE_PENDING)
        f->state = clean ? SCAN_REQUEST_LINE : SCAN_AFTER_LAST;
    f->trailing_bytes = false;
    return clean;
}
