/* Events of a context execution, read from the file that the manager writes: one JSON object per
 * line, made by the server from the messages of the language kernel (service/kernel_event.h). Each
 * object begins with its type. */
#include "server/api/api_internal.h"

#include "core/base/fd.h"
#include "core/base/str.h"
#include "service/context.h"

#include <stdio.h>

#define STEP (64 * KIB)
#define RESULTS_MAX (16 * MIB)

static const char kernel_event_line_start[] = "{\"type\":\"";

static bool kernel_events_read_type(const struct buf *line, char ret[16])
{
    const char *p = line->data;

    if (line->len < sizeof(kernel_event_line_start) || !str_eat(&p, kernel_event_line_start))
        return false;
    size_t n = strcspn(p, "\"");
    if (n == 0 || n > 15)
        return false;
    memcpy(ret, p, n);
    ret[n] = '\0';
    return true;
}

bool kernel_events_read_line(int fd, uint64_t offset, struct buf *ret, char ret_type[16])
{
    char data[STEP] __attribute__((uninitialized));

    for (;;) {
        ssize_t n = pread(fd, data, sizeof(data), (off_t)(offset + ret->len));
        const char *end = n > 0 ? memchr(data, '\n', (size_t)n) : NULL;

        if (n <= 0)
            return false;
        buf_add(ret, data, end ? (size_t)(end - data) : (size_t)n);
        if (end)
            return kernel_events_read_type(ret, ret_type);
    }
}

bool kernel_events_write_results(struct api *api, const char *execution, struct jsonw *w)
{
    auto_fd int fd = manager_open_output(api->settings.manager, execution, CONTEXT_EVENTS);
    auto_buf exception = { 0 };
    uint64_t offset = 0;
    bool more = false;

    jsonw_key(w, "results");
    jsonw_array(w);
    while (fd >= 0 && !more) {
        auto_buf line = { 0 };
        char type[16];

        if (!kernel_events_read_line(fd, offset, &line, type))
            break;
        offset += line.len + 1;
        more = offset > RESULTS_MAX;
        if (more)
            break;
        if (str_eq(type, "exception")) {
            buf_clear(&exception);
            buf_add(&exception, line.data, line.len);
        } else if (str_eq(type, "display") || str_eq(type, "result")) {
            jsonw_raw(w, line.data);
        }
    }
    jsonw_end_array(w);
    if (exception.len)
        api_write_raw_json(w, "exception", exception.data);
    return more;
}
