/* The text follows the rules of the Python package (sdk/python/src/cove/_model_text.py): the
 * outcome as a sentence, the parts with their names, the hint at the end. */
#include "service/tools/tool_result.h"

#include "core/base/mem.h"
#include "core/base/str.h"

#include <stdio.h>
#include <string.h>

#define HINT_MAX 700u

enum result_part { PART_STDOUT, PART_STDERR, PART_DISPLAYED, PART_VALUE, PART_TRACEBACK, PART_COUNT };

struct result_maker {
    struct tool_answer *answer;
    json_t *result;
    uint64_t share[PART_COUNT];
    struct buf displayed; /* of displays, and a line for each image */
    uint64_t image_bytes;
};

static const char *result_text(const json_t *object, const char *key)
{
    const char *s = json_string_value(json_object_get(object, key));

    return s ? s : "";
}

/* A string of bytes that are valid UTF-8 after their conversion. */
static json_t *result_string(const char *data, size_t len)
{
    auto_buf text = { 0 };

    tool_text_add(&text, data, len);
    return json_stringn(text.data ? text.data : "", text.len);
}

/* --- shortening --- */

static void result_add_mark(struct buf *out, uint64_t missing)
{
    buf_addf(out, "\n[... %" PRIu64 " bytes left out ...]\n", missing);
}

static void result_shorten(struct result_maker *m, const char *text, size_t len, uint64_t space, struct buf *ret)
{
    uint64_t head, tail;

    if (!tool_text_split(len, space, &head, &tail)) {
        buf_add(ret, text, len);
        return;
    }
    head = tool_text_whole_length(text, (size_t)head);
    const char *end = text + len - tail;
    size_t broken = tool_text_broken_start(end, (size_t)tail);
    buf_add(ret, text, (size_t)head);
    result_add_mark(ret, len - head - tail + broken);
    buf_add(ret, end + broken, (size_t)tail - broken);
    m->answer->is_truncated = true;
}

static void result_shorten_member(struct result_maker *m, json_t *object, const char *key, uint64_t space)
{
    const json_t *v = json_object_get(object, key);
    auto_buf text = { 0 };

    if (!json_is_string(v) || json_string_length(v) <= space)
        return;
    result_shorten(m, json_string_value(v), json_string_length(v), space, &text);
    json_object_set_new(object, key, json_stringn(text.data, text.len));
}

static void result_read_stream(struct result_maker *m, const struct tool_streams *s, int channel, uint64_t space)
{
    uint64_t total = s->bytes[channel - 1], head, tail;
    bool cut = tool_text_split(total, space, &head, &tail);
    auto_buf text = { 0 }, end = { 0 };

    if (head)
        s->read(s->arg, channel, 0, (size_t)head, &text);
    if (cut) {
        s->read(s->arg, channel, total - tail, (size_t)tail, &end);
        text.len = tool_text_whole_length(text.data ? text.data : "", text.len);
        size_t broken = tool_text_broken_start(end.data ? end.data : "", end.len);
        result_add_mark(&text, total - text.len - (end.len - broken));
        if (end.len > broken)
            buf_add(&text, end.data + broken, end.len - broken);
        m->answer->is_truncated = true;
    }
    json_object_set_new(m->result, channel == 1 ? "stdout" : "stderr",
                        result_string(text.data ? text.data : "", text.len));
}

/* --- displayed results --- */

static bool result_is_image(const char *type)
{
    return str_eq(type, "image/png") || str_eq(type, "image/jpeg") || str_eq(type, "image/gif") ||
           str_eq(type, "image/webp");
}

static void result_take_image(struct result_maker *m, const char *type, const json_t *v, json_t *indexes)
{
    struct tool_answer *a = m->answer;
    size_t len = json_string_length(v);

    if (!json_is_string(v) || a->nimages == TOOL_IMAGES_MAX || m->image_bytes + len > TOOL_IMAGES_BYTES) {
        buf_addf(&m->displayed, "%s[%s: left out, the images together are too large]", m->displayed.len ? "\n" : "",
                 type);
        a->is_truncated = true;
        return;
    }
    m->image_bytes += len;
    json_array_append_new(indexes, json_integer((json_int_t)a->nimages));
    tool_answer_add_image(a, type, json_string_value(v), len);
    buf_addf(&m->displayed, "%s[%s: image %zu]", m->displayed.len ? "\n" : "", type, a->nimages);
}

static void result_take_images(struct result_maker *m, json_t *item)
{
    json_t *data = json_object_get(item, "data"), *indexes = json_array(), *v;
    const char *type;
    void *tmp;

    json_object_foreach_safe(data, tmp, type, v)
    {
        if (!result_is_image(type))
            continue;
        result_take_image(m, type, v, indexes);
        json_object_del(data, type);
    }
    if (json_array_size(indexes) > 0)
        json_object_set(item, "images", indexes);
    json_decref(indexes);
}

/* Plain text is shortened; another representation that does not fit, such as HTML, is omitted: the
 * half of it would be of no use. */
static void result_fit_representations(struct result_maker *m, json_t *item, uint64_t *space)
{
    json_t *data = json_object_get(item, "data"), *v;
    const char *type;
    void *tmp;

    result_shorten_member(m, data, "text/plain", *space);
    *space -= min_u64(*space, strlen(result_text(data, "text/plain")));
    json_object_foreach_safe(data, tmp, type, v)
    {
        auto_free char *text = str_eq(type, "text/plain") ? NULL : json_dumps(v, JSON_COMPACT | JSON_ENCODE_ANY);
        size_t len = text ? strlen(text) : 0;

        if (len <= *space) {
            *space -= len;
            continue;
        }
        json_object_del(data, type);
        m->answer->is_truncated = true;
    }
}

static void result_add_displayed_text(struct result_maker *m, const json_t *item)
{
    const char *text = result_text(json_object_get(item, "data"), "text/plain");

    if (*text && str_eq(result_text(item, "type"), "display"))
        buf_addf(&m->displayed, "%s%s", m->displayed.len ? "\n" : "", text);
}

static uint64_t result_displayed_need(const json_t *results)
{
    uint64_t need = 0;
    const json_t *item, *v;
    const char *type;
    size_t i;

    json_array_foreach(results, i, item)
    {
        json_object_foreach(json_object_get(item, "data"), type, v)
        {
            if (!result_is_image(type))
                need += json_string_length(v) + 16;
        }
    }
    return need;
}

static void result_make_displayed(struct result_maker *m)
{
    json_t *results = json_object_get(m->result, "results"), *item;
    uint64_t space = m->share[PART_DISPLAYED];
    size_t i;

    json_array_foreach(results, i, item)
    {
        result_add_displayed_text(m, item);
        result_take_images(m, item);
        result_fit_representations(m, item, &space);
    }
}

/* --- the text --- */

static void result_add_sentence(const struct result_maker *m, struct buf *out)
{
    static const struct {
        const char *outcome, *text;
    } sentences[] = {
        { "success", "The program succeeded." },
        { "error", "The program failed." },
        { "timeout", "The program was stopped because it ran too long." },
        { "out_of_memory", "The program was stopped because it used too much memory." },
        { "killed", "The program was ended before it finished." },
        { "lost", "The sandbox was lost before the program finished." },
    };
    const char *outcome = result_text(m->result, "outcome");
    const json_t *code = json_object_get(m->result, "exitCode"), *signo = json_object_get(m->result, "signal");
    const char *message = result_text(json_object_get(m->result, "error"), "message");

    if (str_eq(outcome, "error") && json_is_integer(code))
        buf_addf(out, "The program failed with exit code %d.", (int)json_integer_value(code));
    else if (str_eq(outcome, "error") && json_is_integer(signo))
        buf_addf(out, "The program was ended by signal %d.", (int)json_integer_value(signo));
    else
        for (size_t i = 0; i < ARRAY_LEN(sentences); i++)
            if (str_eq(outcome, sentences[i].outcome))
                buf_adds(out, sentences[i].text);
    if (*message)
        buf_addf(out, " Error: %s", message);
}

static void result_add_member(const struct result_maker *m, const char *name, const json_t *object, const char *key)
{
    const json_t *v = json_object_get(object, key);

    if (json_is_string(v))
        tool_text_add_part(&m->answer->text, name, json_string_value(v), json_string_length(v));
}

static void result_write_text(struct result_maker *m, const char *note)
{
    const json_t *exception = json_object_get(m->result, "exception");
    struct buf *out = &m->answer->text;
    auto_buf displayed = { 0 };

    result_add_sentence(m, out);
    result_add_member(m, "stdout", m->result, "stdout");
    result_add_member(m, "stderr", m->result, "stderr");
    if (m->displayed.len)
        result_shorten(m, m->displayed.data, m->displayed.len, m->share[PART_DISPLAYED] + 1024, &displayed);
    tool_text_add_part(out, "displayed", displayed.data ? displayed.data : "", displayed.len);
    result_add_member(m, "value", m->result, "value");
    if (*result_text(exception, "traceback"))
        result_add_member(m, "exception", exception, "traceback");
    else if (exception)
        buf_addf(out, "\nexception:\n%s: %s", result_text(exception, "name"), result_text(exception, "value"));
    if (m->answer->is_truncated && note)
        buf_addf(out, "\nNote: some output was left out. %s", note);
    if (json_is_true(json_object_get(m->result, "contextReset")))
        buf_adds(out, "\nNote: the interpreter was restarted, and its variables are lost.");
    if (*result_text(m->result, "hint"))
        buf_addf(out, "\nHint: %.*s", (int)HINT_MAX, result_text(m->result, "hint"));
}

/* --- all of it --- */

void tool_result_make(struct tool_answer *a, json_t *result, const struct tool_streams *streams, uint64_t space,
                      const char *note)
{
    struct result_maker m = { .answer = a, .result = result };
    json_t *exception = json_object_get(result, "exception");
    uint64_t needs[PART_COUNT] = {
        [PART_STDOUT] = streams->bytes[0],
        [PART_STDERR] = streams->bytes[1],
        [PART_DISPLAYED] = result_displayed_need(json_object_get(result, "results")),
        [PART_VALUE] = json_string_length(json_object_get(result, "value")),
        [PART_TRACEBACK] = json_string_length(json_object_get(exception, "traceback")),
    };

    tool_text_share(needs, m.share, PART_COUNT, space);
    a->is_truncated = a->is_truncated || json_is_true(json_object_get(result, "truncated"));
    a->is_error = !str_eq(result_text(result, "outcome"), "success");
    result_read_stream(&m, streams, 1, m.share[PART_STDOUT]);
    result_read_stream(&m, streams, 2, m.share[PART_STDERR]);
    result_make_displayed(&m);
    result_shorten_member(&m, result, "value", m.share[PART_VALUE]);
    result_shorten_member(&m, exception, "traceback", m.share[PART_TRACEBACK]);
    result_shorten_member(&m, exception, "value", m.share[PART_TRACEBACK] + 1024);
    json_object_set_new(result, "truncated", json_boolean(a->is_truncated));
    result_write_text(&m, note);
    auto_free char *text = json_dumps(result, JSON_COMPACT | JSON_REAL_PRECISION(15));
    buf_clear(&a->json);
    buf_adds(&a->json, text ? text : "{}");
    buf_done(&m.displayed);
    json_decref(result);
}
