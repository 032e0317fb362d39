/* Each kind has a list of fields; a field has one type and may be optional. Unknown fields are not
 * an error, so that a newer language kernel may send more, but they are not passed on. */
#include "service/kernel_event.h"

#include "core/base/jsonw.h"
#include "core/base/mem.h"
#include "core/base/str.h"
#include "core/doc/json_input.h"

#define FIELDS_MAX 6
#define MIME_MAX 64 /* entries per event */
#define MIME_NAME_MAX 128

enum type { TEXT, NUMBER, FLAG, DATA, OBJECT, TEXTS, LINES, ID, ID_OR_NULL };

struct kernel_event_field {
    const char *name;
    enum type type;
    bool optional;
};

static const struct {
    const char *event, *type_name;
    struct kernel_event_field fields[FIELDS_MAX];
} kernel_event_kinds[] = {
    [KERNEL_EVENT_READY] = { "ready",
                             "ready",
                             { { "language", TEXT },
                               { "version", TEXT },
                               { "protocol", NUMBER },
                               { "note", TEXT, true } } },
    [KERNEL_EVENT_STARTED] = { "started", "running", { { "id", ID }, { "count", NUMBER } } },
    [KERNEL_EVENT_DISPLAY] = { "display",
                               "display",
                               { { "id", ID },
                                 { "data", DATA },
                                 { "meta", OBJECT, true },
                                 { "omitted", OBJECT, true } } },
    [KERNEL_EVENT_RESULT] = { "result",
                              "result",
                              { { "id", ID },
                                { "count", NUMBER },
                                { "data", DATA },
                                { "meta", OBJECT, true },
                                { "omitted", OBJECT, true } } },
    [KERNEL_EVENT_ERROR] = { "error",
                             "exception",
                             { { "id", ID }, { "name", TEXT }, { "value", TEXT }, { "traceback", LINES } } },
    [KERNEL_EVENT_INPUT] = { "input", "input", { { "id", ID }, { "prompt", TEXT }, { "password", FLAG } } },
    [KERNEL_EVENT_FINISHED] = { "finished", "finished", { { "id", ID }, { "status", TEXT } } },
    [KERNEL_EVENT_COMPLETIONS] = { "completions",
                                   "completions",
                                   { { "id", ID }, { "matches", TEXTS }, { "start", NUMBER }, { "end", NUMBER } } },
    [KERNEL_EVENT_INSPECTION] = { "inspection", "inspection", { { "id", ID }, { "found", FLAG }, { "data", DATA } } },
    [KERNEL_EVENT_REFUSED] = { "refused", "refused", { { "id", ID_OR_NULL, true }, { "why", TEXT } } },
    [KERNEL_EVENT_REPORT] = { "report", "report", { { "id", ID }, { "report", OBJECT } } },
};

static bool kernel_event_mime_data_ok(json_t *v)
{
    const char *key;
    json_t *entry;

    if (!json_is_object(v) || json_object_size(v) > MIME_MAX)
        return false;
    json_object_foreach(v, key, entry) if (strlen(key) > MIME_NAME_MAX) return false;
    return true;
}

static bool kernel_event_texts_ok(const json_t *v)
{
    size_t i;
    json_t *entry;

    if (!json_is_array(v))
        return false;
    json_array_foreach(v, i, entry) if (!json_is_string(entry)) return false;
    return true;
}

static bool kernel_event_type_ok(json_t *v, enum type type)
{
    switch (type) {
    case TEXT:
        return json_is_string(v);
    case NUMBER:
        return json_is_integer(v) && json_integer_value(v) >= 0;
    case FLAG:
        return json_is_boolean(v);
    case DATA:
        return kernel_event_mime_data_ok(v);
    case OBJECT:
        return json_is_object(v);
    case TEXTS:
    case LINES:
        return kernel_event_texts_ok(v);
    case ID:
        return json_is_string(v) && json_string_length(v) <= KERNEL_EVENT_ID_MAX;
    case ID_OR_NULL:
        return json_is_null(v) || (json_is_string(v) && json_string_length(v) <= KERNEL_EVENT_ID_MAX);
    }
    return false;
}

static int kernel_event_check_fields(const struct kernel_event *e, struct err *err)
{
    for (const struct kernel_event_field *f = kernel_event_kinds[e->kind].fields;
         f < kernel_event_kinds[e->kind].fields + FIELDS_MAX && f->name; f++) {
        json_t *v = json_object_get(e->root, f->name);

        if (v ? !kernel_event_type_ok(v, f->type) : !f->optional)
            return err_set(err, ERR_PROTOCOL, "%s of a %s event is %s", f->name, kernel_event_kinds[e->kind].event,
                           v ? "not of the right type" : "missing");
    }
    return 0;
}

static int kernel_event_find_kind(struct kernel_event *e, struct err *err)
{
    const char *name = json_string_value(json_object_get(e->root, "event"));

    for (unsigned i = 0; name && i < ARRAY_LEN(kernel_event_kinds); i++)
        if (str_eq(name, kernel_event_kinds[i].event)) {
            e->kind = (enum kernel_event_kind)i;
            return 0;
        }
    return err_set(err, ERR_PROTOCOL, "unknown kind of event");
}

static const char *kernel_event_text(const struct kernel_event *e, const char *name)
{
    const char *s = json_string_value(json_object_get(e->root, name));

    return s ? s : "";
}

static int kernel_event_read_status(struct kernel_event *e, struct err *err)
{
    static const char *const names[] = { "ok", "error", "interrupted" };

    for (unsigned i = 0; i < ARRAY_LEN(names); i++)
        if (str_eq(kernel_event_text(e, "status"), names[i])) {
            e->status = (enum kernel_status)i;
            return 0;
        }
    return err_set(err, ERR_PROTOCOL, "finished with an unknown status");
}

static int kernel_event_read(struct kernel_event *e, struct err *err)
{
    if (kernel_event_find_kind(e, err) < 0 || kernel_event_check_fields(e, err) < 0)
        return -1;
    e->id = kernel_event_text(e, "id");
    e->count = (uint64_t)json_integer_value(json_object_get(e->root, "count"));
    e->version = kernel_event_text(e, "version");
    e->note = kernel_event_text(e, "note");
    if (e->kind == KERNEL_EVENT_READY && json_integer_value(json_object_get(e->root, "protocol")) != 1)
        return err_set(err, ERR_PROTOCOL, "unsupported protocol version");
    return e->kind == KERNEL_EVENT_FINISHED ? kernel_event_read_status(e, err) : 0;
}

int kernel_event_parse(const char *line, size_t len, struct kernel_event *ret, struct err *err)
{
    struct kernel_event e = { 0 };

    if (len >= KERNEL_EVENT_LINE_MAX ||
        !json_input_within_limits(line, len, KERNEL_EVENT_DEPTH_MAX, KERNEL_EVENT_WEIGHT_MAX))
        return err_set(err, ERR_PROTOCOL, "the line is too long, nested too deeply, or has too many values");
    e.root = json_loadb(line, len, JSON_REJECT_DUPLICATES, NULL);
    if (!json_is_object(e.root) || kernel_event_read(&e, err) < 0) {
        kernel_event_done(&e);
        return err && err->id != ERR_NONE ? -1 : err_set(err, ERR_PROTOCOL, "the line is not a JSON object");
    }
    *ret = e;
    return 0;
}

void kernel_event_done(struct kernel_event *e)
{
    json_decref(e->root);
    *e = (struct kernel_event){ 0 };
}

static int kernel_event_append_json(const char *data, size_t len, void *out)
{
    buf_add(out, data, len);
    return 0;
}

/* One text for clients; the lines are separate on the channel. */
static void kernel_event_append_lines(const json_t *lines, struct buf *out)
{
    auto_buf text = { 0 };
    struct jsonw w;
    size_t i;
    json_t *line;

    json_array_foreach(lines, i, line)
    {
        if (i > 0)
            buf_adds(&text, "\n");
        buf_add(&text, json_string_value(line), json_string_length(line));
    }
    jsonw_init(&w, out, 0);
    jsonw_strn(&w, text.data ? text.data : "", text.len);
}

void kernel_event_json(const struct kernel_event *e, struct buf *out)
{
    buf_addf(out, "{\"type\":\"%s\"", kernel_event_kinds[e->kind].type_name);
    for (const struct kernel_event_field *f = kernel_event_kinds[e->kind].fields;
         f < kernel_event_kinds[e->kind].fields + FIELDS_MAX && f->name; f++) {
        const json_t *v = json_object_get(e->root, f->name);

        if (!v || f->type == ID || f->type == ID_OR_NULL)
            continue;
        buf_addf(out, ",\"%s\":", f->name);
        if (f->type == LINES)
            kernel_event_append_lines(v, out);
        else
            (void)json_dump_callback(v, kernel_event_append_json, out,
                                     JSON_COMPACT | JSON_ENCODE_ANY | JSON_ENSURE_ASCII);
    }
    buf_adds(out, "}");
}

static void kernel_event_handle_line(const char *line, size_t len, kernel_event_fn *fn, void *arg)
{
    struct err err = { 0 };
    struct kernel_event e;

    if (kernel_event_parse(line, len, &e, &err) < 0) {
        fn(arg, NULL);
        return;
    }
    fn(arg, &e);
    kernel_event_done(&e);
}

void kernel_event_reader_feed(struct kernel_event_reader *r, const void *data, size_t len, kernel_event_fn *fn,
                              void *arg)
{
    const char *p = data;

    while (len > 0) {
        const char *end = memchr(p, '\n', len);
        size_t n = end ? (size_t)(end - p) : len;

        if (!r->skipping_long_line && r->line.len + n >= KERNEL_EVENT_LINE_MAX) {
            r->skipping_long_line = true;
            buf_done(&r->line);
            fn(arg, NULL);
        }
        if (!r->skipping_long_line)
            buf_add(&r->line, p, n);
        if (!end)
            return;
        if (!r->skipping_long_line && r->line.len > 0) {
            struct buf line = r->line;

            r->line = (struct buf){ 0 };
            kernel_event_handle_line(line.data, line.len, fn, arg);
            buf_done(&line);
        }
        r->skipping_long_line = false;
        p = end + 1;
        len -= n + 1;
    }
}

void kernel_event_reader_reset(struct kernel_event_reader *r)
{
    buf_done(&r->line);
    r->skipping_long_line = false;
}
