/* Text is printed on standard output unchanged, an exception with its traceback on standard error.
 * Data that is not text is written to a new file, or not at all. */
#include "client/ctl/show.h"

#include "core/base/fd.h"
#include "core/base/str.h"
#include "client/cli/report.h"
#include "client/ctl/ctl_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#define SAVED_MAX 100000

static bool ctl_show_write(struct ctl_show *s, int fd, const char *data, size_t len)
{
    if (len && fd_write_all(fd, data, len) < 0) {
        err_sys(&s->err, ERR_SYS, "standard output");
        return false;
    }
    return true;
}

bool ctl_show_output(struct ctl_show *s, const json_t *line)
{
    int i = str_eq(ctl_field_text(line, "stream"), "stderr");
    const json_t *data = json_object_get(line, "data");
    auto_buf bytes = { 0 };

    if (data)
        buf_add(&bytes, json_string_value(data), json_string_length(data));
    else
        ctl_decode_base64(&bytes, ctl_field_text(line, "base64"));
    s->offset[i] += bytes.len;
    return ctl_show_write(s, i ? STDERR_FILENO : STDOUT_FILENO, bytes.data, bytes.len);
}

static bool ctl_show_save_file(struct ctl_show *s, const char *ending, const char *data, size_t len)
{
    auto_free char *path = NULL;
    auto_fd int fd = -1;

    do { /* keep the files of earlier runs */
        free(path);
        path = str_printf("%s/%s-%u.%s", s->save, s->name, ++s->last_saved, ending);
        fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
    } while (fd < 0 && errno == EEXIST && s->last_saved < SAVED_MAX);
    if (fd < 0 || fd_write_all(fd, data, len) < 0) {
        err_sys(&s->err, ERR_SYS, "%.160s", path);
        return false;
    }
    if (!s->quiet)
        report_note("saved %s", path);
    return true;
}

static bool ctl_show_save_data(struct ctl_show *s, const json_t *data)
{
    static const struct {
        const char *mime, *ending;
        bool base64;
    } kinds[] = { { "image/png", "png", true },
                  { "image/jpeg", "jpg", true },
                  { "application/pdf", "pdf", true },
                  { "image/svg+xml", "svg", false } };

    for (size_t i = 0; i < ARRAY_LEN(kinds); i++) {
        const json_t *v = json_object_get(data, kinds[i].mime);
        auto_buf bytes = { 0 };

        if (!json_is_string(v))
            continue;
        if (!s->save) {
            s->unsaved++;
            return true;
        }
        if (kinds[i].base64)
            ctl_decode_base64(&bytes, json_string_value(v));
        else
            buf_add(&bytes, json_string_value(v), json_string_length(v));
        if (!ctl_show_save_file(s, kinds[i].ending, bytes.data, bytes.len))
            return false;
    }
    return true;
}

bool ctl_show_data(struct ctl_show *s, const json_t *data)
{
    const json_t *text = json_object_get(data, "text/plain");

    if (json_is_string(text) && (!ctl_show_write(s, STDOUT_FILENO, json_string_value(text), json_string_length(text)) ||
                                 !ctl_show_write(s, STDOUT_FILENO, "\n", 1)))
        return false;
    return ctl_show_save_data(s, data);
}

void ctl_show_end(const struct ctl_show *s)
{
    if (s->unsaved && !s->quiet)
        report_note("%u picture%s displayed but not saved; --save DIR writes them to files", s->unsaved,
                    s->unsaved == 1 ? " was" : "s were");
}

bool ctl_show_exception(struct ctl_show *s, const json_t *line)
{
    const char *traceback = ctl_field_text(line, "traceback");
    auto_buf out = { 0 };

    if (*traceback)
        buf_addf(&out, "%s\n", traceback);
    else
        buf_addf(&out, "%s: %s\n", ctl_field_text(line, "name"), ctl_field_text(line, "value"));
    return ctl_show_write(s, STDERR_FILENO, out.data, out.len);
}
