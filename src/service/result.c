#include "service/result.h"

#include "core/base/clock.h"
#include "core/base/str.h"

#include <jansson.h>
#include <string.h>

/* --- output --- */

static int result_append_json(const char *data, size_t len, void *out)
{
    buf_add(out, data, len);
    return 0;
}

static void result_output_set_value(struct result_output *o, const char *json, size_t len)
{
    json_t *event = json_loadb(json, len, 0, NULL);
    const json_t *text = json_object_get(json_object_get(event, "data"), "text/plain");

    buf_clear(&o->value);
    if (json_is_string(text))
        (void)json_dump_callback(text, result_append_json, &o->value, JSON_ENCODE_ANY);
    json_decref(event);
}

void result_output_add_event(struct result_output *o, const char *type, const char *json, size_t len, bool keep)
{
    static const char exception[] = "{\"type\":\"exception\",";

    if (str_eq(type, "exception")) {
        size_t n = sizeof(exception) - 1;

        buf_clear(&o->exception);
        buf_adds(&o->exception, "{");
        buf_add(&o->exception, json + n, len - n);
        return;
    }
    if (str_eq(type, "result"))
        result_output_set_value(o, json, len);
    if (!keep || (!str_eq(type, "result") && !str_eq(type, "display")))
        return;
    if (o->results.len)
        buf_adds(&o->results, ",");
    buf_add(&o->results, json, len);
}

uint64_t result_output_bytes(const struct result_output *o)
{
    return o->text[0].len + o->text[1].len + o->results.len + o->value.len + o->exception.len;
}

void result_output_done(struct result_output *o)
{
    buf_done(&o->text[0]);
    buf_done(&o->text[1]);
    buf_done(&o->results);
    buf_done(&o->value);
    buf_done(&o->exception);
}

/* --- the object --- */

char *result_error_json(const struct err *why)
{
    struct buf out = { 0 };
    struct jsonw w;

    jsonw_init(&w, &out, 0);
    jsonw_object(&w);
    jsonw_kstr(&w, "code", err_info(why->id)->code);
    jsonw_kstr(&w, "message", why->msg);
    jsonw_end_object(&w);
    return out.data;
}

enum outcome result_outcome(const char *ended_by, int exit_code, bool failed)
{
    enum ended_by by;

    return ended_by && ended_by_parse(ended_by, &by) ? outcome_of(by, exit_code, failed) : OUTCOME_ERROR;
}

void result_set_row_outcome(struct store_execution *row)
{
    int exit_code = row->has_exit_code ? row->exit_code : -1;

    row->outcome = (char *)outcome_name(result_outcome(row->ended_by, exit_code, row->error_json != NULL));
}

static void result_write_end(const struct result *r, struct jsonw *w)
{
    bool failed = r->error_json || (r->output && r->output->exception.len);

    jsonw_kstr(w, "outcome", outcome_name(result_outcome(r->ended_by, r->exit_code, failed)));
    jsonw_ki64_or_null(w, "exitCode", r->exit_code >= 0, r->exit_code);
    jsonw_ki64_or_null(w, "signal", r->signal > 0, r->signal);
    jsonw_kstr_if(w, "endedBy", r->ended_by);
}

static void result_write_text(const char *key, const struct buf *text, struct jsonw *w)
{
    jsonw_key(w, key);
    jsonw_strn(w, text->data ? text->data : "", text->len);
}

static void result_write_output(const struct result *r, struct jsonw *w)
{
    const struct result_output *o = r->output;

    jsonw_kraw(w, "value", o->value.len ? o->value.data : "null");
    if (!r->was_streamed) {
        jsonw_karray(w, "results");
        if (o->results.len)
            jsonw_raw(w, o->results.data);
        jsonw_end_array(w);
        result_write_text("stdout", &o->text[0], w);
        result_write_text("stderr", &o->text[1], w);
    }
    jsonw_kbool(w, "truncated", r->truncated);
    if (o->exception.len)
        jsonw_kraw(w, "exception", o->exception.data);
}

static void result_write_time(const char *key, uint64_t ms, struct jsonw *w)
{
    char text[32];

    if (ms)
        jsonw_kstr(w, key, clock_rfc3339_ms(ms, text));
}

void result_write(const struct result *r, struct jsonw *w)
{
    jsonw_kstr(w, "id", r->id);
    if (r->has_ended)
        result_write_end(r, w);
    if (r->output)
        result_write_output(r, w);
    jsonw_ku64(w, "droppedBytes", r->dropped_bytes);
    jsonw_kstr_if(w, "hint", r->hint);
    result_write_time("startedAt", r->started_ms, w);
    result_write_time("endedAt", r->ended_ms, w);
    if (r->error_json)
        jsonw_kraw(w, "error", r->error_json);
}

/* --- the receipt --- */

const char *const receipt_detail_names[] = { "summary", "none", "full", NULL };

void result_write_receipt(const struct receipt *r, enum receipt_detail detail, struct jsonw *w)
{
    if (detail == RECEIPT_NONE)
        return;
    jsonw_key(w, "receipt");
    if (detail == RECEIPT_FULL)
        receipt_json(r, w);
    else
        receipt_json_summary(r, w);
}

static bool result_receipt_member_matters(const char *key, const json_t *v)
{
    if (str_eq(key, "changes"))
        return json_integer_value(json_object_get(v, "added")) || json_integer_value(json_object_get(v, "modified")) ||
               json_integer_value(json_object_get(v, "deleted"));
    if (str_eq(key, "network"))
        return json_integer_value(json_object_get(v, "connections")) ||
               json_integer_value(json_object_get(v, "refused")) || json_integer_value(json_object_get(v, "failed"));
    return json_is_object(v) || json_array_size(v) > 0;
}

/* As receipt_json_summary(), from the text that the store has. */
void result_write_stored_receipt(const char *json, enum receipt_detail detail, struct jsonw *w)
{
    static const char *const keys[] = { "used", "limitHits", "changes", "denials", "network" };
    static const char *const figures[] = { "wallMs", "cpuMs", "memoryPeakBytes" };

    if (!json || detail == RECEIPT_NONE)
        return;
    if (detail == RECEIPT_FULL) {
        jsonw_kraw(w, "receipt", json);
        return;
    }
    json_t *full = json_loads(json, 0, NULL), *used = json_object(), *summary = json_object();
    for (size_t i = 0; i < ARRAY_LEN(figures); i++)
        json_object_set(used, figures[i], json_object_get(json_object_get(full, "used"), figures[i]));
    json_object_set_new(full, "used", used);
    json_object_del(json_object_get(full, "network"), "rules");
    for (size_t i = 0; i < ARRAY_LEN(keys); i++) {
        json_t *v = json_object_get(full, keys[i]);

        if (v && result_receipt_member_matters(keys[i], v))
            json_object_set(summary, keys[i], v);
    }
    auto_free char *text = json_dumps(summary, JSON_COMPACT | JSON_REAL_PRECISION(15));
    if (text)
        jsonw_kraw(w, "receipt", text);
    json_decref(summary);
    json_decref(full);
}
