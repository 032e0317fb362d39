#include "core/base/err_print.h"

#include "core/base/str.h"

void err_print(struct buf *out, const struct err *err)
{
    char msg[sizeof(err->msg)];

    memcpy(msg, err->msg, sizeof(msg));
    str_strip_control_chars(msg); /* the message may quote untrusted text */
    buf_addf(out, "cove: %s [%s]\n", msg, err_info(err->id)->code);
    err_print_hints(out, err->id, NULL);
}

void err_print_hints(struct buf *out, enum err_id id, const char *fix)
{
    const char *cause = err_cause(id);

    if (!fix || !*fix)
        fix = err_fix(id);
    if (cause)
        buf_addf(out, "  cause: %s\n", cause);
    if (fix)
        buf_addf(out, "  fix:   %s\n", fix);
}

void err_put_hints(struct jsonw *w, enum err_id id, const char *fix)
{
    const char *cause = err_cause(id);

    if (!fix || !*fix)
        fix = err_fix(id);
    if (cause)
        jsonw_kstr(w, "cause", cause);
    if (fix)
        jsonw_kstr(w, "fix", fix);
}
