/* A document uses two blocks of memory: a copy of the text, in which strings are unescaped in place
 * (they only become shorter), and the nodes, whose number is at most that of commas and opening
 * brackets plus one. */
#include "core/base/jsonr.h"

#include "core/base/mem.h"
#include "core/base/str.h"

struct json_reader {
    char *start, *p, *end; /* *end is NUL */
    struct json *nodes;
    size_t n;
    int depth;
    const char *problem;
};

static bool json_refuse(struct json_reader *r, const char *what)
{
    if (!r->problem)
        r->problem = what;
    return false;
}

static void json_skip_space(struct json_reader *r)
{
    while (*r->p == ' ' || *r->p == '\t' || *r->p == '\n' || *r->p == '\r')
        r->p++;
}

static bool json_eat_char(struct json_reader *r, char c)
{
    json_skip_space(r);
    if (*r->p != c)
        return false;
    r->p++;
    return true;
}

/* Strings. */

static bool json_read_hex4(struct json_reader *r, uint32_t *ret)
{
    *ret = 0;
    for (int i = 0; i < 4; i++, r->p++) {
        char c = *r->p;
        unsigned v = c >= '0' && c <= '9'   ? (unsigned)(c - '0')
                     : c >= 'a' && c <= 'f' ? (unsigned)(c - 'a') + 10
                     : c >= 'A' && c <= 'F' ? (unsigned)(c - 'A') + 10
                                            : 16;

        if (v > 15)
            return json_refuse(r, "a bad \\u escape");
        *ret = *ret << 4 | v;
    }
    return true;
}

static char *json_put_utf8(char *out, uint32_t c)
{
    if (c < 0x80) {
        *out++ = (char)c;
    } else if (c < 0x800) {
        *out++ = (char)(0xc0 | c >> 6);
        *out++ = (char)(0x80 | (c & 0x3f));
    } else if (c < 0x10000) {
        *out++ = (char)(0xe0 | c >> 12);
        *out++ = (char)(0x80 | (c >> 6 & 0x3f));
        *out++ = (char)(0x80 | (c & 0x3f));
    } else {
        *out++ = (char)(0xf0 | c >> 18);
        *out++ = (char)(0x80 | (c >> 12 & 0x3f));
        *out++ = (char)(0x80 | (c >> 6 & 0x3f));
        *out++ = (char)(0x80 | (c & 0x3f));
    }
    return out;
}

static bool json_read_unicode(struct json_reader *r, char **out)
{
    uint32_t c, low;

    if (!json_read_hex4(r, &c))
        return false;
    if (c >= 0xd800 && c < 0xdc00) {
        if (r->p[0] != '\\' || r->p[1] != 'u')
            return json_refuse(r, "half a surrogate pair");
        r->p += 2;
        if (!json_read_hex4(r, &low))
            return false;
        if (low < 0xdc00 || low > 0xdfff)
            return json_refuse(r, "half a surrogate pair");
        c = 0x10000 + ((c - 0xd800) << 10) + (low - 0xdc00);
    } else if (c >= 0xdc00 && c < 0xe000) {
        return json_refuse(r, "half a surrogate pair");
    }
    if (c == 0)
        return json_refuse(r, "a NUL in a string");
    *out = json_put_utf8(*out, c);
    return true;
}

static bool json_read_escape(struct json_reader *r, char **out)
{
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    char c = *r->p;
    const char *at = c ? strchr(from, c) : NULL;

    if (c != 'u' && !at) /* at the end *p is NUL, which must not be skipped */
        return json_refuse(r, "an unknown escape");
    r->p++;
    if (!at)
        return json_read_unicode(r, out);
    *(*out)++ = to[at - from];
    return true;
}

/* Starts after the opening quote. The result is stored in the place of the source. */
static bool json_read_string(struct json_reader *r, const char **ret)
{
    char *out = r->p;
    uint32_t c;

    *ret = out;
    while (*r->p != '"') {
        if ((unsigned char)*r->p < 0x20)
            return json_refuse(r, r->p == r->end ? "unexpected end of the text in a string"
                                                 : "a control character in a string");
        if (*r->p == '\\') {
            r->p++;
            if (!json_read_escape(r, &out))
                return false;
            continue;
        }
        size_t n = str_utf8(r->p, (size_t)(r->end - r->p), &c);
        if (n == 0)
            return json_refuse(r, "bytes that are not UTF-8");
        memmove(out, r->p, n);
        out += n;
        r->p += n;
    }
    r->p++;
    *out = '\0';
    return true;
}

/* Values. */

static size_t json_count_digits(const char *p)
{
    return strspn(p, "0123456789");
}

/* The length of the number at p, or 0. */
static size_t json_number_length(const char *p)
{
    const char *q = p + (*p == '-');
    size_t n = json_count_digits(q);

    if (n == 0 || (n > 1 && *q == '0'))
        return 0;
    q += n;
    if (*q == '.') {
        if (json_count_digits(q + 1) == 0)
            return 0;
        q += 1 + json_count_digits(q + 1);
    }
    if (*q == 'e' || *q == 'E') {
        q++;
        q += *q == '+' || *q == '-';
        if (json_count_digits(q) == 0)
            return 0;
        q += json_count_digits(q);
    }
    return (size_t)(q - p);
}

static bool json_read_value(struct json_reader *r, struct json *j);

/* Reads the members of an object (keyed) or the elements of an array, after the opening bracket. */
static bool json_read_list(struct json_reader *r, struct json *parent, bool keyed)
{
    char close = keyed ? '}' : ']';
    struct json **link = &parent->child;

    if (++r->depth > JSON_DEPTH_MAX)
        return json_refuse(r, "too deeply nested");
    if (json_eat_char(r, close)) {
        r->depth--;
        return true;
    }
    do {
        struct json *j = &r->nodes[r->n++];

        if (keyed && !(json_eat_char(r, '"') && json_read_string(r, &j->key) && json_eat_char(r, ':')))
            return json_refuse(r, "expected \"name\":");
        if (!json_read_value(r, j))
            return false;
        *link = j;
        link = &j->next;
    } while (json_eat_char(r, ','));
    r->depth--;
    return json_eat_char(r, close) || json_refuse(r, keyed ? "expected , or }" : "expected , or ]");
}

static bool json_read_literal(struct json_reader *r, struct json *j)
{
    static const struct {
        const char *word;
        enum json_kind kind;
    } words[] = { { "null", JSON_NULL }, { "false", JSON_FALSE }, { "true", JSON_TRUE } };

    for (size_t i = 0; i < ARRAY_LEN(words); i++)
        if (strncmp(r->p, words[i].word, strlen(words[i].word)) == 0) {
            r->p += strlen(words[i].word);
            j->kind = words[i].kind;
            return true;
        }
    return json_refuse(r, r->p == r->end ? "unexpected end of the text" : "expected a value");
}

/* The text of a number cannot be terminated in place, because the next character is still to be
 * read. It ends at the first character that cannot be part of a number, where json_u64 stops. */
static bool json_read_value(struct json_reader *r, struct json *j)
{
    json_skip_space(r);
    size_t n = json_number_length(r->p);
    if (n) {
        j->kind = JSON_NUMBER;
        j->text = r->p;
        r->p += n;
        return true;
    }
    if (json_eat_char(r, '"')) {
        j->kind = JSON_STRING;
        return json_read_string(r, &j->text);
    }
    if (json_eat_char(r, '{')) {
        j->kind = JSON_OBJECT;
        return json_read_list(r, j, true);
    }
    if (json_eat_char(r, '[')) {
        j->kind = JSON_ARRAY;
        return json_read_list(r, j, false);
    }
    return json_read_literal(r, j);
}

static unsigned json_line_of(const struct json_reader *r)
{
    unsigned line = 1;

    for (const char *p = r->start; p < r->p && p < r->end; p++)
        line += *p == '\n';
    return line;
}

int json_read(const char *text, size_t len, struct json_doc *ret, struct err *err)
{
    struct json_reader r = { 0 };
    size_t most = 1;

    if (len > JSON_SIZE_MAX)
        return err_set(err, ERR_INVALID, "more than %u bytes of JSON", JSON_SIZE_MAX);
    for (size_t i = 0; i < len; i++)
        most += text[i] == ',' || text[i] == '[' || text[i] == '{';
    r.start = r.p = mem_alloc(len + 1);
    memcpy(r.start, text, len);
    r.end = r.start + len;
    r.nodes = mem_alloc(most * sizeof(struct json)); /* unused nodes are never touched */
    struct json_doc doc = { .root = &r.nodes[r.n++], .nodes = r.nodes, .text = r.start };
    bool ok = json_read_value(&r, doc.root);
    if (ok) {
        json_skip_space(&r);
        ok = r.p == r.end || json_refuse(&r, "extra text after the document");
    }
    if (!ok) {
        err_set(err, ERR_INVALID, "line %u is not JSON: %s", json_line_of(&r), r.problem);
        json_doc_done(&doc);
        return -1;
    }
    *ret = doc;
    return 0;
}

void json_doc_done(struct json_doc *d)
{
    free(d->nodes);
    free(d->text);
    *d = (struct json_doc){ 0 };
}

/* Access. */

const struct json *json_get(const struct json *object, const char *key)
{
    if (!object || object->kind != JSON_OBJECT)
        return NULL;
    for (const struct json *j = object->child; j; j = j->next)
        if (str_eq(j->key, key))
            return j;
    return NULL;
}

const char *json_text(const struct json *j)
{
    return j && j->kind == JSON_STRING ? j->text : NULL;
}

bool json_u64(const struct json *j, uint64_t *ret)
{
    if (!j || j->kind != JSON_NUMBER)
        return false;
    const char *p = j->text;
    uint64_t v;
    if (!str_eat_u64(&p, UINT64_MAX, &v) || *p == '.' || *p == 'e' || *p == 'E')
        return false;
    *ret = v;
    return true;
}

bool json_ms(const struct json *j, uint64_t *ret_us)
{
    if (!j || j->kind != JSON_NUMBER)
        return false;
    const char *p = j->text;
    uint64_t ms, us = 0;
    if (!str_eat_u64(&p, UINT64_MAX / 1000 - 1, &ms))
        return false;
    if (*p == '.')
        p++;
    for (uint64_t digit = 100; digit && *p >= '0' && *p <= '9'; digit /= 10)
        us += digit * (uint64_t)(*p++ - '0');
    if (*p)
        return false;
    *ret_us = ms * 1000 + us;
    return true;
}
