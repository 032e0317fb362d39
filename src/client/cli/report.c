#include "client/cli/report.h"

#include "core/base/err_print.h"
#include "core/base/fd.h"
#include "core/base/str.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

void report_error_json(struct jsonw *w, const struct err *err)
{
    jsonw_key(w, "error");
    jsonw_object(w);
    jsonw_kstr(w, "code", err_info(err->id)->code);
    jsonw_kstr(w, "message", err->msg);
    err_put_hints(w, err->id, NULL);
    jsonw_end_object(w);
}

int report_json_indent(void)
{
    return isatty(STDOUT_FILENO) ? 2 : 0;
}

int report_error(const struct err *err, bool json)
{
    auto_buf out = { 0 };

    if (json) {
        struct jsonw w;

        jsonw_init(&w, &out, report_json_indent());
        jsonw_object(&w);
        report_error_json(&w, err);
        jsonw_end_object(&w);
        buf_adds(&out, "\n");
        fd_write_all(STDOUT_FILENO, out.data, out.len);
    } else {
        err_print(&out, err);
        fd_write_all(STDERR_FILENO, out.data, out.len);
    }
    return err_info(err->id)->exit;
}

void report_note(const char *fmt, ...)
{
    auto_buf out = { 0 };
    char line[800];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(line, sizeof(line), fmt, ap);
    va_end(ap);
    str_strip_control_chars(line); /* the note may quote untrusted text */
    buf_addf(&out, "cove: %s\n", line);
    fd_write_all(STDERR_FILENO, out.data, out.len);
}

int report_text(const struct buf *text)
{
    struct err err = { 0 };

    if (fd_write_all(STDOUT_FILENO, text->data, text->len) == 0 || errno == EPIPE)
        return 0;
    err_sys(&err, errno == ENOSPC || errno == EDQUOT ? ERR_DISK_FULL : ERR_SYS, "writing to standard output");
    return report_error(&err, false);
}
