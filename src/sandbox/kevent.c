/* Each kind is a row of fields; a field is of one type and there or not. Fields that no row names are not an error, so
 * that a newer kernel can say more, but nothing of them is told on. */
#include "sandbox/kevent.h"

#include "base/mem.h"
#include "base/str.h"
#include "sandbox/body.h"

#define FIELDS_MAX 6
#define MIME_MAX 64 /* entries of one event */
#define MIME_NAME_MAX 128

enum type { TEXT, NUMBER, FLAG, DATA, OBJECT, TEXTS, ID, ID_OR_NULL };

struct field {
    const char *name;
    enum type type;
    bool optional;
};

static const struct {
    const char *event, *told;
    struct field fields[FIELDS_MAX];
} kinds[] = {
    [KEVENT_READY] = { "ready",
                       "ready",
                       { { "language", TEXT }, { "version", TEXT }, { "protocol", NUMBER }, { "note", TEXT, true } } },
    [KEVENT_STARTED] = { "started", "running", { { "id", ID }, { "count", NUMBER } } },
    [KEVENT_DISPLAY] = { "display",
                         "display",
                         { { "id", ID }, { "data", DATA }, { "meta", OBJECT, true }, { "omitted", OBJECT, true } } },
    [KEVENT_RESULT] = { "result",
                        "result",
                        { { "id", ID },
                          { "count", NUMBER },
                          { "data", DATA },
                          { "meta", OBJECT, true },
                          { "omitted", OBJECT, true } } },
    [KEVENT_ERROR] = { "error",
                       "exception",
                       { { "id", ID }, { "name", TEXT }, { "value", TEXT }, { "traceback", TEXTS } } },
    [KEVENT_INPUT] = { "input", "input", { { "id", ID }, { "prompt", TEXT }, { "password", FLAG } } },
    [KEVENT_FINISHED] = { "finished", "finished", { { "id", ID }, { "status", TEXT } } },
    [KEVENT_COMPLETIONS] = { "completions",
                             "completions",
                             { { "id", ID }, { "matches", TEXTS }, { "start", NUMBER }, { "end", NUMBER } } },
    [KEVENT_INSPECTION] = { "inspection", "inspection", { { "id", ID }, { "found", FLAG }, { "data", DATA } } },
    [KEVENT_REFUSED] = { "refused", "refused", { { "id", ID_OR_NULL, true }, { "why", TEXT } } },
};

static bool data_ok(json_t *v)
{
    const char *key;
    json_t *entry;

    if (!json_is_object(v) || json_object_size(v) > MIME_MAX)
        return false;
    json_object_foreach(v, key, entry) if (strlen(key) > MIME_NAME_MAX) return false;
    return true;
}

static bool texts_ok(const json_t *v)
{
    size_t i;
    json_t *entry;

    if (!json_is_array(v))
        return false;
    json_array_foreach(v, i, entry) if (!json_is_string(entry)) return false;
    return true;
}

static bool type_ok(json_t *v, enum type type)
{
    switch (type) {
    case TEXT:
        return json_is_string(v);
    case NUMBER:
        return json_is_integer(v) && json_integer_value(v) >= 0;
    case FLAG:
        return json_is_boolean(v);
    case DATA:
        return data_ok(v);
    case OBJECT:
        return json_is_object(v);
    case TEXTS:
        return texts_ok(v);
    case ID:
        return json_is_string(v) && json_string_length(v) <= KEVENT_ID_MAX;
    case ID_OR_NULL:
        return json_is_null(v) || (json_is_string(v) && json_string_length(v) <= KEVENT_ID_MAX);
    }
    return false;
}

static int check_fields(const struct kevent *e, struct err *err)
{
    for (const struct field *f = kinds[e->kind].fields; f < kinds[e->kind].fields + FIELDS_MAX && f->name; f++) {
        json_t *v = json_object_get(e->root, f->name);

        if (v ? !type_ok(v, f->type) : !f->optional)
            return err_set(err, ERR_PROTOCOL, "%s of a %s event is %s", f->name, kinds[e->kind].event,
                           v ? "not what it has to be" : "missing");
    }
    return 0;
}

static int find_kind(struct kevent *e, struct err *err)
{
    const char *name = json_string_value(json_object_get(e->root, "event"));

    for (unsigned i = 0; name && i < ARRAY_LEN(kinds); i++)
        if (str_eq(name, kinds[i].event)) {
            e->kind = (enum kevent_kind)i;
            return 0;
        }
    return err_set(err, ERR_PROTOCOL, "an event of no known kind");
}

static const char *text(const struct kevent *e, const char *name)
{
    const char *s = json_string_value(json_object_get(e->root, name));

    return s ? s : "";
}

static int read_status(struct kevent *e, struct err *err)
{
    static const char *const names[] = { "ok", "error", "interrupted" };

    for (unsigned i = 0; i < ARRAY_LEN(names); i++)
        if (str_eq(text(e, "status"), names[i])) {
            e->status = (enum kevent_status)i;
            return 0;
        }
    return err_set(err, ERR_PROTOCOL, "finished with a status of no known kind");
}

static int read_event(struct kevent *e, struct err *err)
{
    if (find_kind(e, err) < 0 || check_fields(e, err) < 0)
        return -1;
    e->id = text(e, "id");
    e->count = (uint64_t)json_integer_value(json_object_get(e->root, "count"));
    e->version = text(e, "version");
    e->note = text(e, "note");
    if (e->kind == KEVENT_READY && json_integer_value(json_object_get(e->root, "protocol")) != 1)
        return err_set(err, ERR_PROTOCOL, "a kernel of another protocol");
    return e->kind == KEVENT_FINISHED ? read_status(e, err) : 0;
}

int kevent_parse(const char *line, size_t len, struct kevent *ret, struct err *err)
{
    struct kevent e = { 0 };

    if (len >= KEVENT_LINE_MAX || !body_shape_ok(line, len, KEVENT_DEPTH_MAX, KEVENT_HEAVY_MAX))
        return err_set(err, ERR_PROTOCOL, "a line that is too long, too deep, or has too much in it");
    e.root = json_loadb(line, len, JSON_REJECT_DUPLICATES, NULL);
    if (!json_is_object(e.root) || read_event(&e, err) < 0) {
        kevent_done(&e);
        return err && err->id != ERR_NONE ? -1 : err_set(err, ERR_PROTOCOL, "a line that is no JSON object");
    }
    *ret = e;
    return 0;
}

void kevent_done(struct kevent *e)
{
    json_decref(e->root);
    *e = (struct kevent){ 0 };
}

static int add(const char *data, size_t len, void *out)
{
    buf_add(out, data, len);
    return 0;
}

void kevent_json(const struct kevent *e, struct buf *out)
{
    buf_addf(out, "{\"type\":\"%s\"", kinds[e->kind].told);
    for (const struct field *f = kinds[e->kind].fields; f < kinds[e->kind].fields + FIELDS_MAX && f->name; f++) {
        const json_t *v = json_object_get(e->root, f->name);

        if (!v || f->type == ID || f->type == ID_OR_NULL)
            continue;
        buf_addf(out, ",\"%s\":", f->name);
        (void)json_dump_callback(v, add, out, JSON_COMPACT | JSON_ENCODE_ANY | JSON_ENSURE_ASCII);
    }
    buf_adds(out, "}");
}

static void take_line(const char *line, size_t len, kevent_fn *fn, void *arg)
{
    struct err err = { 0 };
    struct kevent e;

    if (kevent_parse(line, len, &e, &err) < 0) {
        fn(arg, NULL);
        return;
    }
    fn(arg, &e);
    kevent_done(&e);
}

void kevent_feed(struct kevent_reader *r, const void *data, size_t len, kevent_fn *fn, void *arg)
{
    const char *p = data;

    while (len > 0) {
        const char *end = memchr(p, '\n', len);
        size_t n = end ? (size_t)(end - p) : len;

        if (!r->skips && r->line.len + n >= KEVENT_LINE_MAX) {
            r->skips = true;
            buf_done(&r->line);
            fn(arg, NULL);
        }
        if (!r->skips)
            buf_add(&r->line, p, n);
        if (!end)
            return;
        if (!r->skips && r->line.len > 0) {
            struct buf line = r->line;

            r->line = (struct buf){ 0 };
            take_line(line.data, line.len, fn, arg);
            buf_done(&line);
        }
        r->skips = false;
        p = end + 1;
        len -= n + 1;
    }
}

void kevent_reset(struct kevent_reader *r)
{
    buf_done(&r->line);
    r->skips = false;
}
