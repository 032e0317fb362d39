/* A line is built whole and written with one call, so that lines of several processes never mix. Control characters in
 * the message are escaped: a log line is one line, whatever a sandbox managed to put into a name. */
#include "base/log.h"

#include "base/buf.h"
#include "base/clock.h"
#include "base/jsonw.h"
#include "base/str.h"

#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

static const char *prog = "cove";
static enum log_level least = LOG_WARN;
static enum log_form form = LOG_PLAIN;

static const char *const level_names[] = { "debug", "info", "warning", "error" };

void log_setup(const char *program, enum log_level level)
{
    prog = program;
    least = level;
}

void log_form(enum log_form f)
{
    form = f;
}

bool log_level_read(const char *name, enum log_level *ret)
{
    static const char *const names[] = { "debug", "info", "warn", "error" };

    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        if (str_eq(name, names[i])) {
            *ret = (enum log_level)i;
            return true;
        }
    return false;
}

bool log_form_read(const char *name, enum log_form *ret)
{
    if (!str_eq(name, "text") && !str_eq(name, "json"))
        return false;
    *ret = name[0] == 'j' ? LOG_JSON : LOG_TEXT;
    return true;
}

static bool has(const char *id)
{
    return id && *id;
}

static void add_escaped(struct buf *out, const char *msg)
{
    for (const char *p = msg; *p; p++)
        if ((unsigned char)*p < 0x20 || *p == 0x7f)
            buf_addf(out, "\\x%02x", (unsigned char)*p);
        else
            buf_add(out, p, 1);
}

static void write_text(struct buf *out, enum log_level level, const struct log_about *about, const char *msg)
{
    const char *const ids[][2] = { { "request", about->request },
                                   { "sandbox", about->sandbox },
                                   { "execution", about->execution } };
    const char *before = " (";
    char time[32];

    if (form == LOG_PLAIN)
        buf_addf(out, "%s: %s: ", prog, level_names[level]);
    else
        buf_addf(out, "%s %s %s: ", clock_rfc3339(clock_real_ns(), time), level_names[level], prog);
    add_escaped(out, msg);
    for (size_t i = 0; i < ARRAY_LEN(ids); i++) {
        if (!has(ids[i][1]))
            continue;
        buf_addf(out, "%s%s ", before, ids[i][0]);
        add_escaped(out, ids[i][1]);
        before = ", ";
    }
    buf_adds(out, before[0] == ',' ? ")\n" : "\n");
}

static void write_json(struct buf *out, enum log_level level, const struct log_about *about, const char *msg)
{
    struct jsonw w;
    char time[32];

    jsonw_init(&w, out, 0);
    jsonw_object(&w);
    jsonw_kstr(&w, "time", clock_rfc3339(clock_real_ns(), time));
    jsonw_kstr(&w, "level", level_names[level]);
    jsonw_kstr(&w, "program", prog);
    jsonw_ku64(&w, "pid", (uint64_t)getpid());
    jsonw_kstr(&w, "message", msg);
    if (has(about->request))
        jsonw_kstr(&w, "requestId", about->request);
    if (has(about->sandbox))
        jsonw_kstr(&w, "sandbox", about->sandbox);
    if (has(about->execution))
        jsonw_kstr(&w, "execution", about->execution);
    jsonw_end_object(&w);
    buf_adds(out, "\n");
}

static void write_line(enum log_level level, const struct log_about *about, const char *msg)
{
    auto_buf line = { 0 };

    (form == LOG_JSON ? write_json : write_text)(&line, level, about, msg);
    if (write(STDERR_FILENO, line.data, line.len) < 0)
        return; /* nowhere left to complain */
}

#define MSG_MAX 512

void log_write(enum log_level level, const char *fmt, ...)
{
    char msg[MSG_MAX];
    va_list ap;

    if (level < least)
        return;
    va_start(ap, fmt);
    vsnprintf(msg, sizeof(msg), fmt, ap);
    va_end(ap);
    write_line(level, &(struct log_about){ 0 }, msg);
}

void log_about(enum log_level level, const struct log_about *about, const char *fmt, ...)
{
    char msg[MSG_MAX];
    va_list ap;

    if (level < least)
        return;
    va_start(ap, fmt);
    vsnprintf(msg, sizeof(msg), fmt, ap);
    va_end(ap);
    write_line(level, about, msg);
}
