/* The first reader of what clients send. The second is libmicrohttpd, which takes a bare LF for the end of a line, also
 * in the header of a chunk, stops at a NUL, and answers what it refuses with pages of its own. So it gets nothing that
 * was not found to be well-formed here, and there is nothing left for it to refuse.
 *
 * Only lines are looked at; bodies are counted. A line that came whole is read where it lies, one that came in pieces
 * is put together first.
 *
 * 1. A line is bounded before it is kept: request line, head, chunk header and trailer each have a largest size.
 * 2. `ended` counts a request when its last byte was seen, and a refused request never.
 * 3. The daemon notes every parameter of a query and every cookie in the memory of the connection; their number is
 *    bounded here, because it could not say so in our words when that memory is full. */
#include "http/frame.h"

#include "http/uri.h"

#include "base/str.h"

#include <strings.h>

#define CHUNK_LINE_MAX 4096u /* with extensions, which nobody reads */
#define COOKIES_MAX 200u

static bool token_char(unsigned char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           (c && strchr("!#$%&'*+-.^_`|~", c));
}

bool frame_is_token(const char *s, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!token_char((unsigned char)s[i]))
            return false;
    return n > 0;
}

bool frame_is_value(const char *s, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (((unsigned char)s[i] < 0x20 && s[i] != '\t') || s[i] == 0x7f)
            return false;
    return true;
}

bool frame_is_target(const char *s, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if ((unsigned char)s[i] <= 0x20 || s[i] == 0x7f)
            return false;
    return n > 0;
}

void frame_init(struct frame *f, const struct http_limits *lim)
{
    *f = (struct frame){ .lim = lim };
}

void frame_done(struct frame *f)
{
    buf_done(&f->line);
}

static unsigned count(const char *s, size_t n, char c)
{
    unsigned found = 0;

    for (size_t i = 0; i < n; i++)
        found += s[i] == c;
    return found;
}

static bool is_word(const char *s, size_t n, const char *word)
{
    return n == strlen(word) && strncasecmp(s, word, n) == 0;
}

/* Does a list with commas have this word? */
static bool lists_word(const char *s, size_t n, const char *word)
{
    for (size_t i = 0, k; i < n; i = k + 1) {
        for (k = i; k < n && s[k] != ',';)
            k++;
        size_t from = i, to = k;
        while (from < to && (s[from] == ' ' || s[from] == '\t'))
            from++;
        while (to > from && (s[to - 1] == ' ' || s[to - 1] == '\t'))
            to--;
        if (is_word(s + from, to - from, word))
            return true;
    }
    return false;
}

static void next_request(struct frame *f)
{
    f->ended++;
    f->head = 0;
    f->headers = 0;
    f->state = f->last ? FRAME_PAST : FRAME_LINE;
    f->old = f->upgrade = f->chunked = f->has_length = false;
    f->left = 0;
    buf_done(&f->line);
}

/* lines, without their CR LF */

static int request_line(struct frame *f, const char *s, size_t n, struct err *err)
{
    const char *target = memchr(s, ' ', n),
               *version = target ? memchr(target + 1, ' ', n - (size_t)(target + 1 - s)) : NULL;

    if (n == 0)
        return 0; /* RFC 9112, 2.2: an empty line that an old client left behind its body */
    if (!version || !frame_is_token(s, (size_t)(target - s)) ||
        !frame_is_target(target + 1, (size_t)(version - target - 1)))
        return err_set(err, ERR_HTTP_MALFORMED, "the request line is not METHOD TARGET VERSION with single spaces");
    size_t len = n - (size_t)(++version - s);
    if (len != 8 || memcmp(version, "HTTP/1.", 7) != 0 || (version[7] != '0' && version[7] != '1'))
        return err_set(err, ERR_HTTP_MALFORMED, "the version is neither HTTP/1.1 nor HTTP/1.0");
    if (count(target, (size_t)(version - target), '&') >= URI_QUERY_MAX)
        return err_set(err, ERR_HTTP_URI_LONG, "the query has more than %d parameters", URI_QUERY_MAX);
    f->old = f->last = version[7] == '0';
    f->state = FRAME_HEADERS;
    return 0;
}

static int length_header(struct frame *f, const char *s, size_t n, struct err *err)
{
    char digits[24];

    if (f->has_length)
        return err_set(err, ERR_HTTP_MALFORMED, "the header Content-Length came more than once");
    if (n == 0 || n >= sizeof(digits))
        return err_set(err, ERR_HTTP_MALFORMED, "Content-Length is not a number");
    memcpy(digits, s, n);
    digits[n] = '\0';
    if (!str_to_u64(digits, INT64_MAX, &f->left))
        return err_set(err, ERR_HTTP_MALFORMED, "Content-Length is not a number");
    f->has_length = true;
    return 0;
}

static int coding_header(struct frame *f, const char *s, size_t n, struct err *err)
{
    if (f->chunked)
        return err_set(err, ERR_HTTP_MALFORMED, "the header Transfer-Encoding came more than once");
    if (!is_word(s, n, "chunked"))
        return err_set(err, ERR_HTTP_METHOD_UNKNOWN, "no transfer coding but chunked is known here");
    f->chunked = true;
    return 0;
}

static int known_header(struct frame *f, const char *name, size_t name_len, const char *s, size_t n, struct err *err)
{
    if (is_word(name, name_len, "Content-Length"))
        return length_header(f, s, n, err);
    if (is_word(name, name_len, "Transfer-Encoding"))
        return coding_header(f, s, n, err);
    if (is_word(name, name_len, "Upgrade"))
        f->upgrade = true;
    if (is_word(name, name_len, "Connection"))
        f->last = lists_word(s, n, "close") || (f->last && !lists_word(s, n, "keep-alive"));
    if (is_word(name, name_len, "Cookie") && count(s, n, ';') + count(s, n, ',') >= COOKIES_MAX)
        return err_set(err, ERR_HTTP_HEADERS, "the request has more than %u cookies", COOKIES_MAX);
    return 0;
}

static int end_of_head(struct frame *f, struct err *err)
{
    if (f->chunked && (f->has_length || f->old))
        return err_set(err, ERR_HTTP_MALFORMED, "Transfer-Encoding beside Content-Length, or in HTTP/1.0");
    f->head = 0;
    if (f->chunked) {
        f->state = FRAME_CHUNK;
    } else if (f->left > 0) {
        f->state = FRAME_BODY;
    } else {
        bool agreement = f->upgrade && !f->last;

        next_request(f);
        if (agreement)
            f->state = FRAME_AGREEMENT;
    }
    return 0;
}

static int header_line(struct frame *f, const char *s, size_t n, struct err *err)
{
    const char *colon = memchr(s, ':', n);
    bool trailer = f->state == FRAME_TRAILER;

    if (n == 0) {
        if (!trailer)
            return end_of_head(f, err);
        next_request(f);
        return 0;
    }
    if (s[0] == ' ' || s[0] == '\t' || !colon)
        return err_set(err, ERR_HTTP_MALFORMED, "the request has a line that is folded or is no header");
    if (!frame_is_token(s, (size_t)(colon - s)))
        return err_set(err, ERR_HTTP_MALFORMED, "the request has a header whose name is not a token");
    const char *value = colon + 1, *end = s + n;
    while (value < end && (*value == ' ' || *value == '\t'))
        value++;
    while (end > value && (end[-1] == ' ' || end[-1] == '\t'))
        end--;
    if (!frame_is_value(value, (size_t)(end - value)))
        return err_set(err, ERR_HTTP_MALFORMED, "the request has a control character in a header");
    if (++f->headers > f->lim->headers_max)
        return err_set(err, ERR_HTTP_HEADERS, "the request has more than %u headers", f->lim->headers_max);
    return trailer ? 0 : known_header(f, s, (size_t)(colon - s), value, (size_t)(end - value), err);
}

static int hex(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

static int chunk_line(struct frame *f, const char *s, size_t n, struct err *err)
{
    uint64_t size = 0;
    size_t i = 0;

    for (; i < n && hex(s[i]) >= 0; i++) {
        if (size > INT64_MAX >> 4)
            return err_set(err, ERR_HTTP_MALFORMED, "a chunk is too large");
        size = size << 4 | (uint64_t)hex(s[i]);
    }
    if (i == 0 || (i < n && s[i] != ';') || !frame_is_value(s + i, n - i))
        return err_set(err, ERR_HTTP_MALFORMED, "a chunk does not begin with its size");
    f->left = size;
    f->state = size > 0 ? FRAME_DATA : FRAME_TRAILER;
    return 0;
}

static int read_line(struct frame *f, const char *s, size_t n, struct err *err)
{
    switch (f->state) {
    case FRAME_LINE:
        return request_line(f, s, n, err);
    case FRAME_CHUNK:
        return chunk_line(f, s, n, err);
    case FRAME_DATA_END:
        f->state = FRAME_CHUNK;
        return n == 0 ? 0 : err_set(err, ERR_HTTP_MALFORMED, "a chunk is longer than it says");
    default:
        return header_line(f, s, n, err);
    }
}

/* Is there room for a line of n bytes, its end included? */
static int check_room(const struct frame *f, size_t n, struct err *err)
{
    const struct http_limits *lim = f->lim;

    switch (f->state) {
    case FRAME_CHUNK:
        return n <= CHUNK_LINE_MAX ? 0 : err_set(err, ERR_HTTP_MALFORMED, "a chunk's header is too long");
    case FRAME_DATA_END:
        return n <= 2 ? 0 : err_set(err, ERR_HTTP_MALFORMED, "a chunk is longer than it says");
    default:
        if (f->state == FRAME_LINE && n > lim->line_max + 2)
            return err_set(err, ERR_HTTP_URI_LONG, "the request line is longer than %zu bytes", lim->line_max);
        if (n > lim->head_max || f->head > lim->head_max - n)
            return err_set(err, ERR_HTTP_HEADERS, "the head of the request is larger than %zu bytes", lim->head_max);
        return 0;
    }
}

/* As much of a line as there is. Returns how many bytes that were, or -1. */
static ssize_t scan_line(struct frame *f, const char *data, size_t n, struct err *err)
{
    const char *lf = memchr(data, '\n', n), *line = data;
    size_t used = lf ? (size_t)(lf - data) + 1 : n, len = f->line.len + used;

    if (check_room(f, len, err) < 0)
        return -1;
    if (!lf || f->line.len > 0) {
        buf_add(&f->line, data, used);
        line = f->line.data;
    }
    if (!lf)
        return (ssize_t)used;
    if (len < 2 || line[len - 2] != '\r')
        return err_set(err, ERR_HTTP_MALFORMED, "the request has a line that does not end in CR LF");
    f->head += f->state == FRAME_CHUNK || f->state == FRAME_DATA_END ? 0 : len;
    if (read_line(f, line, len - 2, err) < 0)
        return -1;
    buf_clear(&f->line);
    return (ssize_t)used;
}

static ssize_t scan_body(struct frame *f, size_t n)
{
    size_t used = f->left < n ? (size_t)f->left : n;

    f->left -= used;
    if (f->left == 0 && f->state == FRAME_DATA)
        f->state = FRAME_DATA_END;
    else if (f->left == 0)
        next_request(f);
    return (ssize_t)used;
}

int frame_scan(struct frame *f, const char *data, size_t n, size_t *ret_n, struct err *err)
{
    size_t at = 0, begun = 0; /* the request at hand began there */
    uint64_t ended = f->ended;

    while (at < n && f->state != FRAME_AGREEMENT && f->state != FRAME_PAST) {
        bool counted = f->state == FRAME_BODY || f->state == FRAME_DATA;
        ssize_t used = counted ? scan_body(f, n - at) : scan_line(f, data + at, n - at, err);

        if (used < 0) {
            f->state = FRAME_REFUSED;
            *ret_n = begun;
            return -1;
        }
        at += (size_t)used;
        if (f->ended != ended) {
            ended = f->ended;
            begun = at;
        }
    }
    f->beyond |= f->state == FRAME_AGREEMENT && at < n;
    *ret_n = f->state == FRAME_AGREEMENT ? n : at;
    return 0;
}

bool frame_declined(struct frame *f)
{
    bool clean = !f->beyond;

    if (f->state == FRAME_AGREEMENT)
        f->state = clean ? FRAME_LINE : FRAME_PAST;
    f->beyond = false;
    return clean;
}
