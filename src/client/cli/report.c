#include "client/cli/report.h"

#include "core/base/fd.h"
#include "core/base/str.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>

void report_error_json(struct jsonw *w, const struct err *err)
{
    const struct err_info *info = err_info(err->id);

    jsonw_key(w, "error");
    jsonw_object(w);
    jsonw_kstr(w, "code", info->code);
    jsonw_kstr(w, "message", err->msg);
    jsonw_kstr(w, "cause", info->cause);
    jsonw_kstr(w, "fix", info->fix);
    jsonw_end_object(w);
}

int report_error(const struct err *err, bool json)
{
    const struct err_info *info = err_info(err->id);
    auto_buf out = { 0 };

    if (json) {
        struct jsonw w;

        jsonw_init(&w, &out, 0);
        jsonw_object(&w);
        report_error_json(&w, err);
        jsonw_end_object(&w);
        buf_adds(&out, "\n");
        fd_write_all(STDOUT_FILENO, out.data, out.len);
    } else {
        char msg[sizeof(err->msg)];

        memcpy(msg, err->msg, sizeof(msg));
        str_strip_control_chars(msg); /* the message may quote untrusted text */
        buf_addf(&out, "cove: %s\n  code:  %s\n  cause: %s\n  fix:   %s\n", msg, info->code, info->cause, info->fix);
        fd_write_all(STDERR_FILENO, out.data, out.len);
    }
    return info->exit;
}

void report_note(const char *fmt, ...)
{
    auto_buf out = { 0 };
    char line[400];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(line, sizeof(line), fmt, ap);
    va_end(ap);
    str_strip_control_chars(line); /* as above */
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
