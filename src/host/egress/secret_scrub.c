/* A form is looked for with memmem(), which reads gigabytes in a second; the bytes after its first
 * occurrence, and the end of each piece, go through the automaton of Knuth, Morris and Pratt, whose
 * state at the end is the number of bytes that may begin the form. So the time does not depend on
 * the bytes that a hostile server chooses, overlapping occurrences are all found, and no byte is
 * held back without need: the events of a stream pass at once.
 *
 * `raw` and `clean` have the same length. Forms are looked for in `raw`, so one is also found if it
 * begins in bytes that another form has replaced. */
#include "host/egress/secret_scrub.h"

#include "core/base/mem.h"

#include <openssl/evp.h>

#define FORMS_MAX 24u
#define PIECE_MAX (16 * KIB)
#define BASE64_MIN 4u /* characters; shorter ones occur by chance */

struct secret_form {
    char *text;
    uint16_t *fallback; /* of the automaton: per state, the next shorter one */
    size_t len;
};

struct secret_forms {
    struct secret_form list[FORMS_MAX];
    size_t count;
};

static void scrub_wipe(struct buf *b)
{
    if (b->data)
        explicit_bzero(b->data, b->cap);
    buf_done(b);
}

/* --- forms --- */

static void forms_add(struct secret_forms *f, const char *text, size_t len)
{
    for (size_t i = 0; i < f->count; i++)
        if (f->list[i].len == len && memcmp(f->list[i].text, text, len) == 0)
            return;
    if (f->count == FORMS_MAX)
        abort();
    struct secret_form *form = &f->list[f->count++];
    form->text = mem_copy(text, len);
    form->len = len;
    form->fallback = mem_alloc(len * sizeof(*form->fallback));
    for (size_t i = 1, state = 0; i < len; i++) {
        while (state > 0 && text[i] != text[state])
            state = form->fallback[state - 1];
        state += text[i] == text[state];
        form->fallback[i] = (uint16_t)state;
    }
}

/* Room for every form, so that no growth leaves a part of the value in freed memory. */
static struct buf forms_room(const char *value)
{
    struct buf b = { 0 };

    buf_room(&b, 6 * strlen(value) + 8);
    return b;
}

static void forms_add_buf(struct secret_forms *f, struct buf *b)
{
    forms_add(f, b->data, b->len);
    scrub_wipe(b);
}

static bool form_is_unreserved(char c, const char *also)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || (c && strchr(also, c));
}

static void forms_add_percent(struct secret_forms *f, const char *value, const char *unescaped, bool is_upper)
{
    struct buf b = forms_room(value);

    for (const char *p = value; *p; p++)
        if (form_is_unreserved(*p, unescaped))
            buf_add(&b, p, 1);
        else
            buf_addf(&b, is_upper ? "%%%02X" : "%%%02x", (unsigned char)*p);
    forms_add_buf(f, &b);
}

/* In a string of JSON: with the escapes that are required, and with those that some writers add. */
static void forms_add_json(struct secret_forms *f, const char *value, const char *backslashed, const char *as_unicode)
{
    struct buf b = forms_room(value);

    for (const char *p = value; *p; p++)
        if (strchr(as_unicode, *p))
            buf_addf(&b, "\\u%04x", (unsigned char)*p);
        else
            buf_addf(&b, strchr(backslashed, *p) ? "\\%c" : "%c", *p);
    forms_add_buf(f, &b);
}

static void forms_add_html(struct secret_forms *f, const char *value, const char *apostrophe)
{
    struct buf b = forms_room(value);

    for (const char *p = value; *p; p++)
        if (*p == '&')
            buf_adds(&b, "&amp;");
        else if (*p == '<')
            buf_adds(&b, "&lt;");
        else if (*p == '>')
            buf_adds(&b, "&gt;");
        else if (*p == '"')
            buf_adds(&b, "&quot;");
        else if (*p == '\'')
            buf_adds(&b, apostrophe);
        else
            buf_add(&b, p, 1);
    forms_add_buf(f, &b);
}

static void forms_add_hex(struct secret_forms *f, const char *value, bool is_upper)
{
    struct buf b = forms_room(value);

    for (const char *p = value; *p; p++)
        buf_addf(&b, is_upper ? "%02X" : "%02x", (unsigned char)*p);
    forms_add_buf(f, &b);
}

/* The characters of base64 that depend on the value alone, when `before` bytes, or 3 more, or 6
 * more, precede it. */
static void forms_add_base64(struct secret_forms *f, const char *value, size_t before)
{
    size_t n = strlen(value), first = (before * 8 + 5) / 6, last = (before + n) * 8 / 6;
    struct buf in = forms_room(value), out = { 0 };

    buf_add(&in, "\0\0", before);
    buf_add(&in, value, n);
    char *room = buf_room(&out, (in.len + 2) / 3 * 4);
    EVP_EncodeBlock((unsigned char *)room, (const unsigned char *)in.data, (int)in.len);
    if (last >= first + BASE64_MIN) {
        forms_add(f, room + first, last - first);
        for (size_t i = first; i < last; i++)
            room[i] = room[i] == '+' ? '-' : room[i] == '/' ? '_' : room[i];
        forms_add(f, room + first, last - first);
    }
    scrub_wipe(&in);
    scrub_wipe(&out);
}

struct secret_forms *secret_forms_new(const char *value)
{
    static const char *const unescaped[] = { "-._~", "-._~/", "-._~!*'()" };
    struct secret_forms *f = mem_new(struct secret_forms);

    forms_add(f, value, strlen(value));
    for (size_t i = 0; i < ARRAY_LEN(unescaped); i++) {
        forms_add_percent(f, value, unescaped[i], true);
        forms_add_percent(f, value, unescaped[i], false);
    }
    forms_add_json(f, value, "\"\\", "");
    forms_add_json(f, value, "\"\\/", "");
    forms_add_json(f, value, "\"\\", "<>&");
    forms_add_html(f, value, "&#39;");
    forms_add_html(f, value, "&#x27;");
    forms_add_hex(f, value, false);
    forms_add_hex(f, value, true);
    for (size_t before = 0; before < 3; before++)
        forms_add_base64(f, value, before);
    return f;
}

void secret_forms_free(struct secret_forms *f)
{
    if (!f)
        return;
    for (size_t i = 0; i < f->count; i++) {
        explicit_bzero(f->list[i].text, f->list[i].len);
        free(f->list[i].text);
        free(f->list[i].fallback);
    }
    free(f);
}

/* --- search --- */

/* Replaces the form in `clean` where it stands in `raw`. Counts occurrences that end after the
 * first `old` bytes. Returns how many bytes at the end may begin another. */
static size_t form_mask(const struct secret_form *form, const char *raw, char *clean, size_t n, size_t old,
                        uint64_t *found)
{
    const char *first = memmem(raw, n, form->text, form->len);
    size_t at = first ? (size_t)(first - raw) : n - min_size(n, form->len - 1), state = 0;

    for (; at < n; at++) {
        while (state > 0 && raw[at] != form->text[state])
            state = form->fallback[state - 1];
        state += raw[at] == form->text[state];
        if (state == form->len) {
            memset(clean + at + 1 - form->len, '*', form->len);
            *found += at + 1 > old;
            state = form->fallback[state - 1];
        }
    }
    return state;
}

uint64_t secret_forms_mask(const struct secret_forms *f, char *text, size_t n)
{
    auto_free char *raw = mem_copy(n > 0 ? text : "", n > 0 ? n : 1);
    uint64_t found = 0;

    for (size_t i = 0; i < f->count; i++)
        if (memmem(raw, n, f->list[i].text, f->list[i].len))
            form_mask(&f->list[i], raw, text, n, 0, &found);
    explicit_bzero(raw, n);
    return found;
}

void secret_scrub_init(struct secret_scrub *s, const struct secret_forms *forms)
{
    *s = (struct secret_scrub){ .forms = forms };
}

void secret_scrub_done(struct secret_scrub *s)
{
    scrub_wipe(&s->raw);
    scrub_wipe(&s->clean);
}

static void scrub_piece(struct secret_scrub *s, const char *data, size_t n, struct buf *out)
{
    size_t old = s->raw.len, held = 0;

    buf_add(&s->raw, data, n);
    buf_add(&s->clean, data, n);
    for (size_t i = 0; i < s->forms->count; i++) {
        size_t may_begin = form_mask(&s->forms->list[i], s->raw.data, s->clean.data, s->raw.len, old, &s->found);

        held = may_begin > held ? may_begin : held;
    }
    size_t ready = s->raw.len - held;
    buf_add(out, s->clean.data, ready);
    buf_drop(&s->raw, ready);
    buf_drop(&s->clean, ready);
}

void secret_scrub_feed(struct secret_scrub *s, const char *data, size_t n, struct buf *out)
{
    for (size_t piece; n > 0; data += piece, n -= piece) {
        piece = min_size(n, PIECE_MAX);
        scrub_piece(s, data, piece, out);
    }
    if (s->raw.len == 0)
        secret_scrub_done(s); /* no memory between pieces, as usual */
}

void secret_scrub_end(struct secret_scrub *s, struct buf *out)
{
    if (s->clean.len > 0)
        buf_add(out, s->clean.data, s->clean.len);
    secret_scrub_done(s);
}
