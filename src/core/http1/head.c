/* A head is parsed in one pass when all of it has arrived. Until then only the ends of lines are
 * looked at, so that a head in many pieces costs no more than a head in one.
 *
 * The rules are those of src/server/http/request_scanner.c. The texts are not the same because the
 * jobs are not: the scanner guards another parser and may store one line only, and knows no targets
 * or responses. */
#include "core/http1/head.h"

#include "core/http1/grammar.h"

#include <strings.h>

/* --- texts --- */

#define CONNECTION_WORDS_MAX 32u /* each names a field to look for in every other field */

static const struct http1_text head_empty = { "", 0 };

static struct http1_text head_text(const char *from, const char *to)
{
    return (struct http1_text){ from, (size_t)(to - from) };
}

bool http1_text_is(struct http1_text t, const char *s)
{
    return t.len == strlen(s) && memcmp(t.data, s, t.len) == 0;
}

static bool head_same_nocase(struct http1_text a, struct http1_text b)
{
    return a.len == b.len && (a.len == 0 || strncasecmp(a.data, b.data, a.len) == 0);
}

struct http1_text http1_text_of(const char *s)
{
    return (struct http1_text){ s, strlen(s) };
}

bool http1_text_is_nocase(struct http1_text t, const char *s)
{
    return head_same_nocase(t, http1_text_of(s));
}

static struct http1_text head_trim(struct http1_text t)
{
    while (t.len > 0 && (t.data[0] == ' ' || t.data[0] == '\t')) {
        t.data++;
        t.len--;
    }
    while (t.len > 0 && (t.data[t.len - 1] == ' ' || t.data[t.len - 1] == '\t'))
        t.len--;
    return t;
}

bool http1_list_has(struct http1_text value, struct http1_text word)
{
    const char *s = value.data, *end = value.data + value.len;

    while (s < end) {
        const char *comma = memchr(s, ',', (size_t)(end - s)), *stop = comma ? comma : end;

        if (head_same_nocase(head_trim(head_text(s, stop)), word))
            return true;
        s = stop + 1;
    }
    return false;
}

const struct http1_field *http1_find(const struct http1_fields *f, const char *name)
{
    for (size_t i = 0; i < f->count; i++)
        if (http1_text_is_nocase(f->list[i].name, name))
            return &f->list[i];
    return NULL;
}

static bool head_is_token(struct http1_text t)
{
    for (size_t i = 0; i < t.len; i++)
        if (!http1_is_token_char((unsigned char)t.data[i]))
            return false;
    return t.len > 0;
}

static bool head_is_value(struct http1_text t)
{
    for (size_t i = 0; i < t.len; i++)
        if (!http1_is_value_char((unsigned char)t.data[i]))
            return false;
    return true;
}

/* --- host and port --- */

static bool head_port_parse(struct http1_text t, uint16_t *ret)
{
    uint32_t port = 0;

    if (t.len == 0 || t.len > 5 || t.data[0] == '0')
        return false;
    for (size_t i = 0; i < t.len; i++) {
        if (t.data[i] < '0' || t.data[i] > '9')
            return false;
        port = port * 10 + (uint32_t)(t.data[i] - '0');
    }
    *ret = (uint16_t)port;
    return port <= UINT16_MAX;
}

static bool head_is_host(struct http1_text t, bool is_ipv6)
{
    if (t.len == 0 || t.len > 255)
        return false;
    for (size_t i = 0; i < t.len; i++) {
        unsigned char c = (unsigned char)t.data[i];

        if (is_ipv6 ? http1_hex_digit(c) < 0 && c != ':' && c != '.'
                    : !http1_is_alnum(c) && c != '-' && c != '_' && c != '.')
            return false;
    }
    return true;
}

bool http1_authority_parse(struct http1_text t, struct http1_authority *ret)
{
    bool is_ipv6 = t.len > 0 && t.data[0] == '[';
    const char *end = t.data + t.len, *host = t.data + is_ipv6;
    const char *host_end = is_ipv6 ? memchr(t.data, ']', t.len) : memchr(t.data, ':', t.len);
    const char *colon = is_ipv6 && host_end ? host_end + 1 : host_end;
    struct http1_authority a = { .is_ipv6 = is_ipv6 };

    if (!host_end) {
        if (is_ipv6)
            return false;
        host_end = colon = end;
    }
    if (colon < end && (*colon != ':' || !head_port_parse(head_text(colon + 1, end), &a.port)))
        return false;
    a.host = head_text(host, host_end);
    if (!head_is_host(a.host, is_ipv6))
        return false;
    *ret = a;
    return true;
}

static struct http1_text head_without_final_dot(struct http1_text t)
{
    if (t.len > 1 && t.data[t.len - 1] == '.')
        t.len--;
    return t;
}

static bool head_same_authority(const struct http1_request *r)
{
    struct http1_text a = head_without_final_dot(r->authority.host), b = head_without_final_dot(r->host.host);
    uint16_t port_a = r->authority.port, port_b = r->host.port;

    if (a.len == 0 || b.len == 0)
        return true; /* one side does not name a host */
    if (r->authority.is_ipv6 != r->host.is_ipv6 || !head_same_nocase(a, b))
        return false;
    if (r->form == HTTP1_FORM_AUTHORITY)
        return port_b == 0 || port_a == port_b; /* some clients leave out the port in Host */
    uint16_t standard = http1_text_is_nocase(r->scheme, "https") ? 443 : 80;
    return (port_a ? port_a : standard) == (port_b ? port_b : standard);
}

/* --- the end of the head --- */

/* Finds the end of the head that begins at `begin`, 0 or 2. */
static enum http1_result head_find_end(const char *data, size_t len, size_t begin, size_t *seen, size_t *ret_len,
                                       struct err *err)
{
    size_t at = *seen > begin ? *seen : begin, max = len < HTTP1_HEAD_MAX ? len : HTTP1_HEAD_MAX;

    while (at < max) {
        const char *lf = memchr(data + at, '\n', max - at);

        if (!lf)
            break;
        at = (size_t)(lf - data) + 1;
        if (at < begin + 2 || lf[-1] != '\r')
            return (enum http1_result)err_set(err, ERR_HTTP_MALFORMED,
                                              "the head has a line that does not end in CR LF");
        if (at == begin + 2 || lf[-2] == '\n') {
            *ret_len = at;
            return HTTP1_DONE;
        }
    }
    *seen = max;
    if (len >= HTTP1_HEAD_MAX)
        return (enum http1_result)err_set(err, ERR_HTTP_HEADERS, "the head is larger than %llu bytes", HTTP1_HEAD_MAX);
    return HTTP1_MORE;
}

/* Returns the line at *s, which ends in CR LF, without this end, and moves *s after it. */
static struct http1_text head_next_line(const char **s, const char *end)
{
    const char *lf = memchr(*s, '\n', (size_t)(end - *s));
    struct http1_text line = head_text(*s, lf - 1);

    *s = lf + 1;
    return line;
}

/* --- fields --- */

/* The facts of a head that requests and responses share. */
struct head_facts {
    const struct http1_field *host;
    uint64_t length;
    size_t connection_words;
    bool has_length, is_chunked, has_upgrade, connection_close, connection_keep_alive, connection_upgrade, has_continue;
};

static int head_content_length(struct head_facts *f, struct http1_text v, struct err *err)
{
    if (f->has_length)
        return err_set(err, ERR_HTTP_MALFORMED, "the field Content-Length occurs more than once");
    if (v.len == 0 || v.len > 18)
        return err_set(err, ERR_HTTP_MALFORMED, "Content-Length is not a number");
    for (size_t i = 0; i < v.len; i++) {
        if (v.data[i] < '0' || v.data[i] > '9')
            return err_set(err, ERR_HTTP_MALFORMED, "Content-Length is not a number");
        f->length = f->length * 10 + (uint64_t)(v.data[i] - '0');
    }
    f->has_length = true;
    return 0;
}

static int head_known_field(struct head_facts *f, const struct http1_field *field, struct err *err)
{
    struct http1_text name = field->name, v = field->value;

    if (http1_text_is_nocase(name, "Content-Length"))
        return head_content_length(f, v, err);
    if (http1_text_is_nocase(name, "Transfer-Encoding")) {
        if (f->is_chunked)
            return err_set(err, ERR_HTTP_MALFORMED, "the field Transfer-Encoding occurs more than once");
        if (!http1_text_is_nocase(v, "chunked"))
            return err_set(err, ERR_HTTP_METHOD_UNKNOWN, "unknown transfer coding; only chunked is supported");
        f->is_chunked = true;
    } else if (http1_text_is_nocase(name, "Host")) {
        if (f->host)
            return err_set(err, ERR_HTTP_MALFORMED, "the field Host occurs more than once");
        f->host = field;
    } else if (http1_text_is_nocase(name, "Connection")) {
        for (size_t i = 0; i <= v.len; i++)
            f->connection_words += i == v.len || v.data[i] == ',';
        if (f->connection_words > CONNECTION_WORDS_MAX)
            return err_set(err, ERR_HTTP_HEADERS, "Connection names more than %u fields", CONNECTION_WORDS_MAX);
        f->connection_close |= http1_list_has(v, http1_text_of("close"));
        f->connection_keep_alive |= http1_list_has(v, http1_text_of("keep-alive"));
        f->connection_upgrade |= http1_list_has(v, http1_text_of("upgrade"));
    } else if (http1_text_is_nocase(name, "Upgrade")) {
        f->has_upgrade = true;
    } else if (http1_text_is_nocase(name, "Expect")) {
        f->has_continue |= http1_text_is_nocase(v, "100-continue");
    }
    return 0;
}

static int head_read_fields(const char *s, const char *end, struct http1_fields *ret, struct head_facts *facts,
                            struct err *err)
{
    *facts = (struct head_facts){ 0 };
    ret->count = 0;
    for (struct http1_text line = head_next_line(&s, end); line.len > 0; line = head_next_line(&s, end)) {
        const char *colon = memchr(line.data, ':', line.len);

        if (line.data[0] == ' ' || line.data[0] == '\t' || !colon)
            return err_set(err, ERR_HTTP_MALFORMED, "the head has a line that is folded or is not a field");
        if (ret->count == HTTP1_FIELDS_MAX)
            return err_set(err, ERR_HTTP_HEADERS, "the head has more than %d fields", HTTP1_FIELDS_MAX);
        struct http1_field *f = &ret->list[ret->count++];
        f->name = head_text(line.data, colon);
        f->value = head_trim(head_text(colon + 1, line.data + line.len));
        if (!head_is_token(f->name))
            return err_set(err, ERR_HTTP_MALFORMED, "the head has a field whose name is not a token");
        if (!head_is_value(f->value))
            return err_set(err, ERR_HTTP_MALFORMED, "the head has a control character in a field");
        if (head_known_field(facts, f, err) < 0)
            return -1;
    }
    return 0;
}

static int head_check_framing(const struct head_facts *f, bool is_http10, struct err *err)
{
    if (f->is_chunked && (f->has_length || is_http10))
        return err_set(err, ERR_HTTP_MALFORMED, "Transfer-Encoding together with Content-Length, or in HTTP/1.0");
    return 0;
}

static bool head_keeps_alive(const struct head_facts *f, bool is_http10)
{
    return !f->connection_close && (!is_http10 || f->connection_keep_alive);
}

/* Reads "HTTP/1.0" or "HTTP/1.1". */
static bool head_read_version(struct http1_text t, bool *ret_is_http10)
{
    *ret_is_http10 = http1_text_is(t, "HTTP/1.0");
    return *ret_is_http10 || http1_text_is(t, "HTTP/1.1");
}

/* --- requests --- */

/* Splits "/path?query"; `rest` may also be empty or begin with '?'. */
static void head_split_path(struct http1_request *r, struct http1_text rest)
{
    const char *end = rest.data + rest.len, *mark = memchr(rest.data, '?', rest.len);

    r->path = head_text(rest.data, mark ? mark : end);
    r->query = mark ? head_text(mark, end) : head_empty;
}

static int head_read_absolute(struct http1_request *r, struct err *err)
{
    const char *s = r->target.data, *end = s + r->target.len, *colon = memchr(s, ':', r->target.len);

    r->form = HTTP1_FORM_ABSOLUTE;
    if (!colon || end - colon < 3 || memcmp(colon, "://", 3) != 0)
        return err_set(err, ERR_HTTP_MALFORMED, "the target is neither a path nor an absolute URI");
    r->scheme = head_text(s, colon);
    if (!http1_text_is_nocase(r->scheme, "http") && !http1_text_is_nocase(r->scheme, "https"))
        return err_set(err, ERR_HTTP_MALFORMED, "the scheme of the target is neither http nor https");
    const char *from = colon + 3, *to = from;
    while (to < end && *to != '/' && *to != '?')
        to++;
    if (memchr(from, '@', (size_t)(to - from)))
        return err_set(err, ERR_HTTP_MALFORMED, "the target has user information before its host");
    if (!http1_authority_parse(head_text(from, to), &r->authority))
        return err_set(err, ERR_HTTP_MALFORMED, "the host or port of the target is not valid");
    head_split_path(r, head_text(to, end));
    return 0;
}

static int head_read_target(struct http1_request *r, struct err *err)
{
    r->scheme = r->path = r->query = r->authority.host = r->host.host = head_empty;
    for (size_t i = 0; i < r->target.len; i++) {
        unsigned char c = (unsigned char)r->target.data[i];

        if (c <= 0x20 || c == 0x7f)
            return err_set(err, ERR_HTTP_MALFORMED, "the target has a space or a control character");
        if (c == '#' || c == '\\')
            return err_set(err, ERR_HTTP_MALFORMED, "the target has a '#' or a '\\'");
    }
    if (http1_text_is(r->method, "CONNECT")) {
        r->form = HTTP1_FORM_AUTHORITY;
        if (memchr(r->target.data, '@', r->target.len))
            return err_set(err, ERR_HTTP_MALFORMED, "the target has user information before its host");
        if (!http1_authority_parse(r->target, &r->authority) || r->authority.port == 0)
            return err_set(err, ERR_HTTP_MALFORMED, "the target of CONNECT is not host:port");
        return 0;
    }
    if (http1_text_is(r->target, "*")) {
        r->form = HTTP1_FORM_ASTERISK;
        return http1_text_is(r->method, "OPTIONS")
                   ? 0
                   : err_set(err, ERR_HTTP_MALFORMED, "the target '*' is for OPTIONS only");
    }
    if (r->target.len == 0 || r->target.data[0] != '/')
        return head_read_absolute(r, err);
    r->form = HTTP1_FORM_ORIGIN;
    head_split_path(r, r->target);
    return 0;
}

static int head_read_request_line(struct http1_request *r, struct http1_text line, struct err *err)
{
    const char *end = line.data + line.len, *space = memchr(line.data, ' ', line.len);
    const char *second = space ? memchr(space + 1, ' ', (size_t)(end - space - 1)) : NULL;

    if (!second)
        return err_set(err, ERR_HTTP_MALFORMED, "the request line is not METHOD TARGET VERSION with single spaces");
    r->method = head_text(line.data, space);
    r->target = head_text(space + 1, second);
    if (!head_is_token(r->method) || r->target.len == 0)
        return err_set(err, ERR_HTTP_MALFORMED, "the request line is not METHOD TARGET VERSION with single spaces");
    if (!head_read_version(head_text(second + 1, end), &r->is_http10))
        return err_set(err, ERR_HTTP_MALFORMED, "the version is neither HTTP/1.1 nor HTTP/1.0");
    return head_read_target(r, err);
}

static int head_finish_request(struct http1_request *r, const struct head_facts *f, struct err *err)
{
    if (head_check_framing(f, r->is_http10, err) < 0)
        return -1;
    if (f->host && !http1_authority_parse(f->host->value, &r->host))
        return err_set(err, ERR_HTTP_MALFORMED, "the field Host is not a host with or without a port");
    if (!f->host && !r->is_http10)
        return err_set(err, ERR_HTTP_MALFORMED, "the request has no field Host");
    r->host_differs = !head_same_authority(r);
    r->length = f->length;
    r->has_length = f->has_length;
    r->framing = f->is_chunked ? HTTP1_FRAMING_CHUNKED : f->length > 0 ? HTTP1_FRAMING_LENGTH : HTTP1_FRAMING_NONE;
    r->keep_alive = head_keeps_alive(f, r->is_http10);
    r->has_upgrade = f->has_upgrade && f->connection_upgrade && !r->is_http10;
    r->expects_continue = f->has_continue && !r->is_http10;
    return 0;
}

/* Whether a request may begin with these bytes: a token, after one empty line at most (RFC 9112,
 * 2.2: an old client sends it after a body). *ret_begin is the offset of the request line. */
static bool head_may_begin(const char *data, size_t len, size_t *ret_begin)
{
    *ret_begin = 0;
    if (len > 0 && data[0] == '\r') {
        if (len > 1 && data[1] != '\n')
            return false;
        *ret_begin = 2;
    }
    return *ret_begin >= len || http1_is_token_char((unsigned char)data[*ret_begin]);
}

enum http1_result http1_read_request(const char *data, size_t len, size_t *seen, struct http1_request *ret,
                                     size_t *ret_len, struct err *err)
{
    struct head_facts facts;
    size_t begin;

    if (len == 0)
        return HTTP1_MORE;
    if (!head_may_begin(data, len, &begin))
        return (enum http1_result)err_set(err, ERR_HTTP_MALFORMED, "the bytes are not an HTTP/1 request");
    enum http1_result result = head_find_end(data, len, begin, seen, ret_len, err);
    if (result != HTTP1_DONE)
        return result;
    const char *s = data + begin, *end = data + *ret_len;
    memset(ret, 0, offsetof(struct http1_request, fields)); /* the list of fields is large */
    if (head_read_request_line(ret, head_next_line(&s, end), err) < 0 ||
        head_read_fields(s, end, &ret->fields, &facts, err) < 0 || head_finish_request(ret, &facts, err) < 0)
        return HTTP1_BAD;
    return HTTP1_DONE;
}

/* --- responses --- */

static int head_read_status_line(struct http1_response *r, struct http1_text line, struct err *err)
{
    const char *s = line.data;

    if (line.len < 12 || !head_read_version(head_text(s, s + 8), &r->is_http10) || s[8] != ' ' ||
        (line.len > 12 && s[12] != ' '))
        return err_set(err, ERR_HTTP_MALFORMED, "the status line is not VERSION STATUS REASON");
    r->status = 0;
    for (size_t i = 9; i < 12; i++) {
        if (s[i] < '0' || s[i] > '9')
            return err_set(err, ERR_HTTP_MALFORMED, "the status is not a number of three digits");
        r->status = r->status * 10 + (unsigned)(s[i] - '0');
    }
    if (r->status < 100)
        return err_set(err, ERR_HTTP_MALFORMED, "the status is less than 100");
    r->reason = line.len > 13 ? head_text(s + 13, s + line.len) : head_empty;
    return head_is_value(r->reason) ? 0 : err_set(err, ERR_HTTP_MALFORMED, "the reason has a control character");
}

static int head_finish_response(struct http1_response *r, const struct head_facts *f, bool is_head, bool is_connect,
                                struct err *err)
{
    if (head_check_framing(f, r->is_http10, err) < 0)
        return -1;
    bool never_has_body = r->status < 200 || r->status == 204 || (is_connect && r->status < 300);
    r->is_upgrade = r->status == 101;
    r->is_interim = r->status < 200 && !r->is_upgrade;
    r->length = f->length;
    r->has_length = f->has_length && !never_has_body;
    r->keep_alive = head_keeps_alive(f, r->is_http10);
    if (never_has_body || is_head || r->status == 304) {
        r->framing = HTTP1_FRAMING_NONE;
        /* A server that announces a body where none may be could send it: do not read further. */
        r->keep_alive = r->keep_alive && !(never_has_body && (f->is_chunked || f->length > 0));
    } else if (f->is_chunked) {
        r->framing = HTTP1_FRAMING_CHUNKED;
    } else if (f->has_length) {
        r->framing = f->length > 0 ? HTTP1_FRAMING_LENGTH : HTTP1_FRAMING_NONE;
    } else {
        r->framing = HTTP1_FRAMING_UNTIL_CLOSE;
        r->keep_alive = false;
    }
    return 0;
}

enum http1_result http1_read_response(const char *data, size_t len, size_t *seen, bool is_head, bool is_connect,
                                      struct http1_response *ret, size_t *ret_len, struct err *err)
{
    static const char begin[] = "HTTP/1.";
    struct head_facts facts;

    if (len == 0)
        return HTTP1_MORE;
    if (memcmp(data, begin, len < sizeof(begin) - 1 ? len : sizeof(begin) - 1) != 0)
        return (enum http1_result)err_set(err, ERR_HTTP_MALFORMED, "the bytes are not an HTTP/1 response");
    enum http1_result result = head_find_end(data, len, 0, seen, ret_len, err);
    if (result != HTTP1_DONE)
        return result;
    const char *s = data, *end = data + *ret_len;
    if (head_read_status_line(ret, head_next_line(&s, end), err) < 0 ||
        head_read_fields(s, end, &ret->fields, &facts, err) < 0 ||
        head_finish_response(ret, &facts, is_head, is_connect, err) < 0)
        return HTTP1_BAD;
    return HTTP1_DONE;
}
