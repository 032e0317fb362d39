#include "core/doc/problems.h"

#include "core/base/err_print.h"
#include "core/base/str.h"

#include <stdarg.h>
#include <stdio.h>

void problems_add(struct problems *p, enum err_id id, uint32_t line, uint32_t col, const char *fix, const char *fmt,
                  ...)
{
    va_list ap;

    if (p->n == PROBLEMS_MAX) {
        p->overflow_count++;
        return;
    }
    struct problem *q = &p->list[p->n++];
    *q = (struct problem){ .id = id, .line = line, .col = col };
    va_start(ap, fmt);
    vsnprintf(q->msg, sizeof(q->msg), fmt, ap);
    va_end(ap);
    str_strip_control_chars(q->msg); /* the message may quote an untrusted file */
    snprintf(q->fix, sizeof(q->fix), "%s", fix ? fix : "");
}

static int problems_compare(const void *a, const void *b)
{
    const struct problem *x = a, *y = b;

    if (x->line != y->line)
        return x->line < y->line ? -1 : 1;
    return (x->col > y->col) - (x->col < y->col);
}

void problems_print(struct problems *p, struct buf *out)
{
    qsort(p->list, p->n, sizeof(p->list[0]), problems_compare);
    for (size_t i = 0; i < p->n; i++) {
        const struct problem *q = &p->list[i];

        buf_adds(out, "cove: ");
        if (p->file)
            buf_adds(out, p->file);
        if (p->file && q->line)
            buf_addf(out, ":%" PRIu32 ":%" PRIu32, q->line, q->col);
        buf_addf(out, "%s%s [%s]\n", p->file ? ": " : "", q->msg, err_info(q->id)->code);
        err_print_hints(out, q->id, q->fix);
    }
    if (p->overflow_count)
        buf_addf(out, "cove: %s%sand %zu more\n", p->file ? p->file : "", p->file ? ": " : "", p->overflow_count);
}

static void problems_put_one_json(const struct problems *p, const struct problem *q, struct jsonw *w)
{
    jsonw_object(w);
    jsonw_kstr(w, "code", err_info(q->id)->code);
    if (p->file)
        jsonw_kstr(w, "file", p->file);
    if (q->line) {
        jsonw_ku64(w, "line", q->line);
        jsonw_ku64(w, "column", q->col);
    }
    jsonw_kstr(w, "message", q->msg);
    err_put_hints(w, q->id, q->fix);
    jsonw_end_object(w);
}

void problems_json(struct problems *p, struct jsonw *w)
{
    qsort(p->list, p->n, sizeof(p->list[0]), problems_compare);
    jsonw_key(w, "error"); /* the same place as in all other errors of cove */
    if (p->n)
        problems_put_one_json(p, &p->list[0], w);
    else
        jsonw_null(w);
    jsonw_key(w, "errors");
    jsonw_array(w);
    for (size_t i = 0; i < p->n; i++)
        problems_put_one_json(p, &p->list[i], w);
    jsonw_end_array(w);
}

int problems_exit(const struct problems *p)
{
    int status = 0;

    for (size_t i = 0; i < p->n; i++)
        if (err_info(p->list[i].id)->exit > status)
            status = err_info(p->list[i].id)->exit;
    return status;
}
