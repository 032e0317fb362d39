/* A machine of one byte per step for chunk headers and trailers, and of whole pieces for content.
 * It accepts what RFC 9112 requires of a sender and nothing more: no whitespace after the size of a
 * chunk, no bare LF, no folded trailer. A program on the next hop that is more generous then has
 * nothing to be generous with, and finds the same end. */
#include "core/http1/body.h"

#include "core/http1/grammar.h"

#include <stdio.h>

void http1_body_init(struct http1_body *b, enum http1_framing framing, uint64_t length)
{
    *b = (struct http1_body){ .state = HTTP1_BODY_ENDED };
    if (framing == HTTP1_FRAMING_LENGTH && length > 0) {
        b->state = HTTP1_BODY_LENGTH;
        b->left = length;
    } else if (framing == HTTP1_FRAMING_CHUNKED) {
        b->state = HTTP1_BODY_CHUNK_SIZE;
    } else if (framing == HTTP1_FRAMING_UNTIL_CLOSE) {
        b->state = HTTP1_BODY_UNTIL_CLOSE;
    }
}

bool http1_body_may_close(const struct http1_body *b)
{
    return b->state == HTTP1_BODY_UNTIL_CLOSE || b->state == HTTP1_BODY_ENDED;
}

static int body_size_digit(struct http1_body *b, unsigned char c, struct err *err)
{
    int digit = http1_hex_digit(c);

    if (digit >= 0) {
        if (b->left > INT64_MAX >> 4)
            return err_set(err, ERR_HTTP_MALFORMED, "a chunk is too large");
        b->left = b->left << 4 | (uint64_t)digit;
        b->has_digit = true;
    } else if (b->has_digit && c == ';') {
        b->state = HTTP1_BODY_CHUNK_EXTENSION;
    } else if (b->has_digit && c == '\r') {
        b->state = HTTP1_BODY_CHUNK_SIZE_LF;
    } else {
        return err_set(err, ERR_HTTP_MALFORMED, "a chunk does not begin with its size");
    }
    return 0;
}

static int body_expect(struct http1_body *b, unsigned char c, unsigned char expected, enum http1_body_state next,
                       const char *complaint, struct err *err)
{
    b->state = next;
    return c == expected ? 0 : err_set(err, ERR_HTTP_MALFORMED, "%s", complaint);
}

static int body_trailer_byte(struct http1_body *b, unsigned char c, struct err *err)
{
    if (b->state == HTTP1_BODY_TRAILER_START && c == '\r')
        b->state = HTTP1_BODY_LAST_LF;
    else if (b->state == HTTP1_BODY_TRAILER_VALUE && c == '\r')
        b->state = HTTP1_BODY_TRAILER_LF;
    else if (b->state == HTTP1_BODY_TRAILER_NAME && c == ':')
        b->state = HTTP1_BODY_TRAILER_VALUE;
    else if (b->state == HTTP1_BODY_TRAILER_VALUE ? !http1_is_value_char(c) : !http1_is_token_char(c))
        return err_set(err, ERR_HTTP_MALFORMED, "the trailer after the last chunk is not well-formed");
    else if (b->state == HTTP1_BODY_TRAILER_START)
        b->state = HTTP1_BODY_TRAILER_NAME;
    return 0;
}

/* A byte that is not content. */
static int body_framing_byte(struct http1_body *b, unsigned char c, struct err *err)
{
    bool in_size = b->state == HTTP1_BODY_CHUNK_SIZE || b->state == HTTP1_BODY_CHUNK_EXTENSION;

    if (++b->line_bytes > (in_size ? HTTP1_CHUNK_LINE_MAX : (uint32_t)HTTP1_TRAILER_MAX))
        return err_set(err, ERR_HTTP_MALFORMED,
                       in_size ? "the header of a chunk is too long" : "the trailer after the last chunk is too long");
    switch (b->state) {
    case HTTP1_BODY_CHUNK_SIZE:
        return body_size_digit(b, c, err);
    case HTTP1_BODY_CHUNK_EXTENSION:
        if (c == '\r')
            b->state = HTTP1_BODY_CHUNK_SIZE_LF;
        else if (!http1_is_value_char(c))
            return err_set(err, ERR_HTTP_MALFORMED, "a chunk has a control character in its header");
        return 0;
    case HTTP1_BODY_CHUNK_SIZE_LF:
        b->line_bytes = 0;
        return body_expect(b, c, '\n', b->left > 0 ? HTTP1_BODY_CHUNK_DATA : HTTP1_BODY_TRAILER_START,
                           "the header of a chunk does not end in CR LF", err);
    case HTTP1_BODY_CHUNK_END_CR:
        return body_expect(b, c, '\r', HTTP1_BODY_CHUNK_END_LF, "a chunk is longer than its size", err);
    case HTTP1_BODY_CHUNK_END_LF:
        b->line_bytes = 0;
        b->has_digit = false;
        return body_expect(b, c, '\n', HTTP1_BODY_CHUNK_SIZE, "a chunk does not end in CR LF", err);
    case HTTP1_BODY_TRAILER_LF:
        return body_expect(b, c, '\n', HTTP1_BODY_TRAILER_START, "a trailer does not end in CR LF", err);
    case HTTP1_BODY_LAST_LF:
        return body_expect(b, c, '\n', HTTP1_BODY_ENDED, "the last chunk does not end in CR LF", err);
    default:
        return body_trailer_byte(b, c, err);
    }
}

static bool body_state_has_content(enum http1_body_state s)
{
    return s == HTTP1_BODY_LENGTH || s == HTTP1_BODY_UNTIL_CLOSE || s == HTTP1_BODY_CHUNK_DATA;
}

static size_t body_take_content(struct http1_body *b, size_t n)
{
    if (b->state == HTTP1_BODY_UNTIL_CLOSE)
        return n;
    size_t taken = b->left < n ? (size_t)b->left : n;
    b->left -= taken;
    if (b->left == 0)
        b->state = b->state == HTTP1_BODY_CHUNK_DATA ? HTTP1_BODY_CHUNK_END_CR : HTTP1_BODY_ENDED;
    return taken;
}

enum http1_result http1_body_read(struct http1_body *b, const char *data, size_t n, size_t *ret_n,
                                  struct http1_text *ret_content, struct err *err)
{
    size_t at = 0;

    *ret_content = (struct http1_text){ 0 };
    if (b->state == HTTP1_BODY_REFUSED)
        return (enum http1_result)err_set(err, ERR_HTTP_MALFORMED, "the body is not well-formed");
    while (at < n && b->state != HTTP1_BODY_ENDED && !body_state_has_content(b->state)) {
        if (body_framing_byte(b, (unsigned char)data[at], err) < 0) {
            b->state = HTTP1_BODY_REFUSED;
            *ret_n = at;
            return HTTP1_BAD;
        }
        at++;
    }
    if (at < n && body_state_has_content(b->state)) {
        *ret_content = (struct http1_text){ data + at, body_take_content(b, n - at) };
        at += ret_content->len;
    }
    *ret_n = at;
    return b->state == HTTP1_BODY_ENDED ? HTTP1_DONE : HTTP1_MORE;
}

enum http1_result http1_body_pass(struct http1_body *b, const char *data, size_t n, size_t *ret_n, struct err *err)
{
    enum http1_result result;
    struct http1_text content;
    size_t at = 0, used;

    do {
        result = http1_body_read(b, data + at, n - at, &used, &content, err);
        if (result == HTTP1_BAD)
            used = 0;
        at += used;
    } while (result == HTTP1_MORE && at < n);
    *ret_n = at;
    return result;
}

size_t http1_chunk_head(size_t n, char ret[HTTP1_CHUNK_HEAD_MAX])
{
    return (size_t)snprintf(ret, HTTP1_CHUNK_HEAD_MAX, "%zx\r\n", n);
}
