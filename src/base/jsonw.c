#include "base/jsonw.h"

#include "base/str.h"

void jsonw_init(struct jsonw *w, struct buf *out, int indent)
{
    *w = (struct jsonw){ .out = out, .indent = indent, .first = true };
}

static void newline(struct jsonw *w)
{
    if (!w->indent)
        return;
    buf_add(w->out, "\n", 1);
    for (int i = 0; i < w->depth * w->indent; i++)
        buf_add(w->out, " ", 1);
}

/* What stands before a value or key: nothing after a key, a comma unless it is the first of its container. */
static void before(struct jsonw *w)
{
    if (w->keyed) {
        w->keyed = false;
        return;
    }
    if (!w->first)
        buf_add(w->out, ",", 1);
    if (w->depth)
        newline(w);
    w->first = false;
}

static void open_(struct jsonw *w, char c)
{
    before(w);
    buf_add(w->out, &c, 1);
    w->depth++;
    w->first = true;
}

static void close_(struct jsonw *w, char c)
{
    bool empty = w->first;

    w->depth--;
    if (!empty)
        newline(w);
    buf_add(w->out, &c, 1);
    w->first = false;
}

void jsonw_object(struct jsonw *w)
{
    open_(w, '{');
}

void jsonw_array(struct jsonw *w)
{
    open_(w, '[');
}

void jsonw_end_object(struct jsonw *w)
{
    close_(w, '}');
}

void jsonw_end_array(struct jsonw *w)
{
    close_(w, ']');
}

static void escaped(struct buf *out, uint32_t c)
{
    static const char short_from[] = "\"\\\n\r\t\b\f", short_to[] = "\"\\nrtbf";
    static const char hex[] = "0123456789abcdef";
    const char *p = c && c < 0x80 ? strchr(short_from, (int)c) : NULL;
    char text[] = { '\\', 'u', hex[c >> 12 & 15], hex[c >> 8 & 15], hex[c >> 4 & 15], hex[c & 15] };

    if (p)
        text[1] = short_to[p - short_from];
    buf_add(out, text, p ? 2 : sizeof(text)); /* not formatted: output has a line end in every few bytes */
}

static void quoted(struct buf *out, const char *s, size_t n)
{
    const unsigned char *p = (const unsigned char *)s;

    buf_add(out, "\"", 1);
    for (size_t i = 0, run = 0; i <= n; i += run) {
        size_t start = i;
        uint32_t c;

        while (i < n && p[i] >= 0x20 && p[i] < 0x7f && p[i] != '"' && p[i] != '\\')
            i++;
        buf_add(out, s + start, i - start);
        if (i == n)
            break;
        run = str_utf8(s + i, n - i, &c);
        if (run > 0 && c >= 0xa0 && c != 0x2028 && c != 0x2029) {
            buf_add(out, s + i, run);
        } else if (run > 0) { /* also upper control characters, which some terminals obey, and what ends a line for
                               * some readers of text */
            escaped(out, c);
        } else {
            buf_adds(out, "\xef\xbf\xbd");
            run = 1;
        }
    }
    buf_add(out, "\"", 1);
}

void jsonw_key(struct jsonw *w, const char *key)
{
    before(w);
    quoted(w->out, key, strlen(key));
    buf_adds(w->out, w->indent ? ": " : ":");
    w->keyed = true;
}

void jsonw_strn(struct jsonw *w, const char *s, size_t n)
{
    before(w);
    quoted(w->out, s, n);
}

void jsonw_str(struct jsonw *w, const char *s)
{
    jsonw_strn(w, s, strlen(s));
}

void jsonw_u64(struct jsonw *w, uint64_t v)
{
    before(w);
    buf_addf(w->out, "%" PRIu64, v);
}

void jsonw_i64(struct jsonw *w, int64_t v)
{
    before(w);
    buf_addf(w->out, "%" PRId64, v);
}

void jsonw_bool(struct jsonw *w, bool v)
{
    before(w);
    buf_adds(w->out, v ? "true" : "false");
}

void jsonw_null(struct jsonw *w)
{
    before(w);
    buf_adds(w->out, "null");
}

void jsonw_raw(struct jsonw *w, const char *json)
{
    before(w);
    buf_adds(w->out, json);
}

void jsonw_kstr(struct jsonw *w, const char *key, const char *s)
{
    jsonw_key(w, key);
    jsonw_str(w, s);
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

void jsonw_kbool(struct jsonw *w, const char *key, bool v)
{
    jsonw_key(w, key);
    jsonw_bool(w, v);
}
