/* Complete lines are read where they lie in the caller's bytes; only an incomplete line is copied
 * and continued with the next piece. CR ends a line at once, so an event is never held back for a
 * byte that may not arrive for an hour; a LF that follows is then skipped.
 *
 * Invariants: 1. how a stream is cut into pieces makes no difference to its events; 2. line and
 * data hold at most the maximum of an event, a field name and one piece. */
#include "remote/mcp/sse.h"

#include "core/base/buf.h"
#include "core/base/mem.h"
#include "core/base/str.h"

#define SSE_FIELD_MAX 64u         /* what a line may be longer than an event: name of the field, colon, space */
#define SSE_RETRY_MAX_MS 3600000u /* a server cannot ask for more than an hour */

struct sse {
    sse_event_fn *on_event;
    void *arg;
    size_t event_max;
    struct buf line; /* the start of an incomplete line */
    struct buf data; /* of the current event, with a line feed after each of its lines */
    char type[SSE_TYPE_MAX + 1];
    char id[SSE_ID_MAX + 1];      /* as last set by a field */
    char last_id[SSE_ID_MAX + 1]; /* the same at the end of the last event */
    uint32_t retry_ms;
    bool has_retry;
    bool after_start; /* a line was read: no byte order mark follows */
    bool after_cr;    /* the last byte was a CR that ended a line */
    bool stopped;     /* by on_event */
};

struct sse *sse_new(size_t event_max, sse_event_fn *on_event, void *arg)
{
    struct sse *s = mem_new(struct sse);

    s->event_max = event_max;
    s->on_event = on_event;
    s->arg = arg;
    return s;
}

void sse_free(struct sse *s)
{
    if (!s)
        return;
    buf_done(&s->line);
    buf_done(&s->data);
    free(s);
}

static void sse_end_event(struct sse *s)
{
    memcpy(s->last_id, s->id, sizeof(s->id));
    if (s->data.len > 0) {
        s->data.data[--s->data.len] = '\0';
        const struct sse_event e = {
            .type = s->type[0] ? s->type : "message", .data = s->data.data, .len = s->data.len, .id = s->last_id
        };
        s->stopped = !s->on_event(s->arg, &e);
    }
    buf_clear(&s->data);
    s->type[0] = '\0';
}

static int sse_copy_value(char *to, size_t max, const char *value, size_t len, const char *field, struct err *err)
{
    if (len > max)
        return err_set(err, ERR_PROTOCOL, "the field %s of an event has %zu bytes; the maximum is %zu", field, len,
                       max);
    memcpy(to, value, len);
    to[len] = '\0';
    return 0;
}

/* Only digits; anything else is ignored, as the standard demands. */
static void sse_set_retry(struct sse *s, const char *value, size_t len)
{
    uint64_t ms = 0;

    for (size_t i = 0; i < len; i++) {
        if (value[i] < '0' || value[i] > '9')
            return;
        ms = min_u64(ms * 10 + (uint64_t)(value[i] - '0'), SSE_RETRY_MAX_MS);
    }
    s->has_retry = len > 0 || s->has_retry;
    if (len > 0)
        s->retry_ms = (uint32_t)ms;
}

static bool sse_name_is(const char *name, size_t len, const char *field)
{
    return len == strlen(field) && memcmp(name, field, len) == 0;
}

static int sse_read_field(struct sse *s, const char *name, size_t name_len, const char *value, size_t len,
                          struct err *err)
{
    if (sse_name_is(name, name_len, "data")) {
        if (s->data.len + len > s->event_max)
            return err_set(err, ERR_PROTOCOL, "an event has more than %zu bytes", s->event_max);
        buf_add(&s->data, value, len);
        buf_adds(&s->data, "\n");
        return 0;
    }
    if (sse_name_is(name, name_len, "event"))
        return sse_copy_value(s->type, SSE_TYPE_MAX, value, len, "event", err);
    if (sse_name_is(name, name_len, "id") && !memchr(value, '\0', len))
        return sse_copy_value(s->id, SSE_ID_MAX, value, len, "id", err);
    if (sse_name_is(name, name_len, "retry"))
        sse_set_retry(s, value, len);
    return 0;
}

static int sse_check_line(const struct sse *s, size_t len, struct err *err)
{
    if (len > s->event_max + SSE_FIELD_MAX)
        return err_set(err, ERR_PROTOCOL, "a line of an event has more than %zu bytes", s->event_max);
    return 0;
}

static int sse_read_line(struct sse *s, const char *line, size_t len, struct err *err)
{
    if (!s->after_start && len >= 3 && memcmp(line, "\xef\xbb\xbf", 3) == 0) {
        line += 3;
        len -= 3;
    }
    s->after_start = true;
    if (len == 0) {
        sse_end_event(s);
        return 0;
    }
    const char *colon = memchr(line, ':', len);
    size_t name_len = colon ? (size_t)(colon - line) : len;
    const char *value = colon ? colon + 1 : line + len;
    size_t value_len = (size_t)(line + len - value);

    if (value_len > 0 && *value == ' ') {
        value++;
        value_len--;
    }
    return sse_read_field(s, line, name_len, value, value_len, err); /* a comment has the empty name */
}

static const char *sse_find_line_end(const char *p, const char *end)
{
    while (p < end && *p != '\n' && *p != '\r')
        p++;
    return p;
}

/* The bound is the same for a line that arrives at once, so that pieces make no difference. */
static int sse_end_line(struct sse *s, const char *part, size_t len, struct err *err)
{
    if (sse_check_line(s, s->line.len + len, err) < 0)
        return -1;
    if (s->line.len == 0)
        return sse_read_line(s, part, len, err);
    buf_add(&s->line, part, len);
    if (sse_read_line(s, s->line.data, s->line.len, err) < 0)
        return -1;
    buf_clear(&s->line);
    return 0;
}

int sse_feed(struct sse *s, const void *data, size_t len, struct err *err)
{
    const char *p = data, *end = p + len;

    while (p < end && !s->stopped) {
        if (s->after_cr && *p == '\n')
            p++;
        s->after_cr = false;
        const char *line_end = sse_find_line_end(p, end);
        if (line_end == end) {
            buf_add(&s->line, p, (size_t)(end - p));
            return sse_check_line(s, s->line.len, err);
        }
        s->after_cr = *line_end == '\r';
        if (sse_end_line(s, p, (size_t)(line_end - p), err) < 0)
            return -1;
        p = line_end + 1;
    }
    return 0;
}

const char *sse_last_id(const struct sse *s)
{
    return s->last_id;
}

bool sse_retry_ms(const struct sse *s, uint32_t *ret)
{
    if (s->has_retry)
        *ret = s->retry_ms;
    return s->has_retry;
}
