#include "core/base/jsonw.h"

#include "core/base/str.h"

#include <inttypes.h>
#include <stdio.h>

#define PIECE 1024u

static void jsonw_put_char(struct buf *out, char c)
{
    char *to = buf_room(out, 1);

    to[0] = c;
    to[1] = '\0';
    out->len++;
}

void jsonw_init(struct jsonw *w, struct buf *out, int indent)
{
    *w = (struct jsonw){ .out = out, .indent = indent, .first = true };
}

static void jsonw_put_newline(struct jsonw *w)
{
    if (!w->indent)
        return;
    jsonw_put_char(w->out, '\n');
    for (int i = 0; i < w->depth * w->indent; i++)
        jsonw_put_char(w->out, ' ');
}

/* Writes the separator before a value or key: nothing after a key, and a comma except before the
 * first item of a container. */
static void jsonw_put_separator(struct jsonw *w)
{
    if (w->keyed) {
        w->keyed = false;
        return;
    }
    if (!w->first)
        jsonw_put_char(w->out, ',');
    if (w->depth)
        jsonw_put_newline(w);
    w->first = false;
}

static void jsonw_open(struct jsonw *w, char c)
{
    jsonw_put_separator(w);
    jsonw_put_char(w->out, c);
    w->depth++;
    w->first = true;
}

static void jsonw_close(struct jsonw *w, char c)
{
    bool empty = w->first;

    w->depth--;
    if (!empty)
        jsonw_put_newline(w);
    jsonw_put_char(w->out, c);
    w->first = false;
}

void jsonw_object(struct jsonw *w)
{
    jsonw_open(w, '{');
}

void jsonw_array(struct jsonw *w)
{
    jsonw_open(w, '[');
}

void jsonw_end_object(struct jsonw *w)
{
    jsonw_close(w, '}');
}

void jsonw_end_array(struct jsonw *w)
{
    jsonw_close(w, ']');
}

static void jsonw_put_unicode_escape(struct buf *out, uint32_t c)
{
    static const char hex[] = "0123456789abcdef";
    const char text[] = { '\\', 'u', hex[c >> 12 & 15], hex[c >> 8 & 15], hex[c >> 4 & 15], hex[c & 15] };

    buf_add(out, text, sizeof(text));
}

/* Writes a character that is not plain ASCII and has no short escape. Returns the number of bytes
 * of `s` it consumed. */
static size_t jsonw_put_non_ascii(struct buf *out, const char *s, size_t n)
{
    uint32_t c;
    size_t run = str_utf8(s, n, &c);

    if (run == 0) {
        buf_adds(out, "\xef\xbf\xbd");
        return 1;
    }
    /* C1 control characters, which some terminals obey, and the line separators U+2028 and U+2029
     * are escaped as well. */
    if (c >= 0xa0 && c != 0x2028 && c != 0x2029)
        buf_add(out, s, run);
    else
        jsonw_put_unicode_escape(out, c);
    return run;
}

/* How a byte is written: 0: unchanged; JSONW_OTHER: by jsonw_put_non_ascii; else a backslash and
 * this letter. */
#define JSONW_OTHER 1
static const char jsonw_escapes[256] = { [0 ... 7] = JSONW_OTHER,
                                         ['\b'] = 'b',
                                         ['\t'] = 't',
                                         ['\n'] = 'n',
                                         [11] = JSONW_OTHER,
                                         ['\f'] = 'f',
                                         ['\r'] = 'r',
                                         [14 ... 31] = JSONW_OTHER,
                                         ['"'] = '"',
                                         ['\\'] = '\\',
                                         [127 ... 255] = JSONW_OTHER };

/* Writes directly into the buffer, in runs of unescaped bytes: a response has hundreds of names,
 * and its text can be long. */
static void jsonw_put_quoted(struct buf *out, const char *s, size_t n)
{
    jsonw_put_char(out, '"');
    for (size_t i = 0; i < n;) {
        size_t end = i + min_u64(n - i, PIECE);
        char *to = buf_room(out, 2 * (end - i)), *const began = to;
        char form = 0;

        for (; i < end && (form = jsonw_escapes[(unsigned char)s[i]]) != JSONW_OTHER; i++) {
            if (form)
                *to++ = '\\';
            *to++ = form ? form : s[i];
        }
        *to = '\0';
        out->len += (size_t)(to - began);
        if (i < end)
            i += jsonw_put_non_ascii(out, s + i, n - i);
    }
    jsonw_put_char(out, '"');
}

void jsonw_key(struct jsonw *w, const char *key)
{
    jsonw_put_separator(w);
    jsonw_put_quoted(w->out, key, strlen(key));
    jsonw_put_char(w->out, ':');
    if (w->indent)
        jsonw_put_char(w->out, ' ');
    w->keyed = true;
}

void jsonw_strn(struct jsonw *w, const char *s, size_t n)
{
    jsonw_put_separator(w);
    jsonw_put_quoted(w->out, s, n);
}

void jsonw_str(struct jsonw *w, const char *s)
{
    jsonw_strn(w, s, strlen(s));
}

void jsonw_u64(struct jsonw *w, uint64_t v)
{
    char text[24], *p = text + sizeof(text);

    jsonw_put_separator(w);
    do
        *--p = (char)('0' + v % 10); /* not snprintf: a receipt has dozens of numbers */
    while (v /= 10);
    buf_add(w->out, p, (size_t)(text + sizeof(text) - p));
}

void jsonw_i64(struct jsonw *w, int64_t v)
{
    jsonw_put_separator(w);
    buf_addf(w->out, "%" PRId64, v);
}

void jsonw_bool(struct jsonw *w, bool v)
{
    jsonw_put_separator(w);
    buf_adds(w->out, v ? "true" : "false");
}

void jsonw_null(struct jsonw *w)
{
    jsonw_put_separator(w);
    buf_adds(w->out, "null");
}

void jsonw_raw(struct jsonw *w, const char *json)
{
    jsonw_put_separator(w);
    buf_adds(w->out, json);
}

void jsonw_kstr(struct jsonw *w, const char *key, const char *s)
{
    jsonw_key(w, key);
    jsonw_str(w, s);
}

void jsonw_kstr_if(struct jsonw *w, const char *key, const char *s)
{
    if (s && *s)
        jsonw_kstr(w, key, s);
}

void jsonw_ku64(struct jsonw *w, const char *key, uint64_t v)
{
    jsonw_key(w, key);
    jsonw_u64(w, v);
}

void jsonw_ki64(struct jsonw *w, const char *key, int64_t v)
{
    jsonw_key(w, key);
    jsonw_i64(w, v);
}

void jsonw_ki64_or_null(struct jsonw *w, const char *key, bool known, int64_t v)
{
    jsonw_key(w, key);
    if (known)
        jsonw_i64(w, v);
    else
        jsonw_null(w);
}

void jsonw_kbool(struct jsonw *w, const char *key, bool v)
{
    jsonw_key(w, key);
    jsonw_bool(w, v);
}

void jsonw_kms(struct jsonw *w, const char *key, uint64_t ns)
{
    uint64_t us = ns / 1000;
    char text[32];
    int n = snprintf(text, sizeof(text), "%" PRIu64 ".%03u", us / 1000, (unsigned)(us % 1000));

    while (text[n - 1] == '0')
        n--;
    text[text[n - 1] == '.' ? n - 1 : n] = '\0';
    jsonw_kraw(w, key, text);
}

void jsonw_kraw(struct jsonw *w, const char *key, const char *json)
{
    jsonw_key(w, key);
    jsonw_raw(w, json);
}

void jsonw_kobject(struct jsonw *w, const char *key)
{
    jsonw_key(w, key);
    jsonw_object(w);
}

void jsonw_karray(struct jsonw *w, const char *key)
{
    jsonw_key(w, key);
    jsonw_array(w);
}
