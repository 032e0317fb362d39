/* A line is built completely and written with one call, so that lines of several processes never
 * mix. Control characters in the message are escaped: a log entry stays one line even if a sandbox
 * puts line breaks into a name. */
#include "core/base/log.h"

#include "core/base/buf.h"
#include "core/base/clock.h"
#include "core/base/jsonw.h"
#include "core/base/str.h"

#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

static const char *log_program = "cove";
static enum log_level log_min_level = LOG_WARN;
static enum log_format log_current_format = LOG_PLAIN;

static const char *const log_level_names[] = { "debug", "info", "warning", "error" };

void log_setup(const char *program, enum log_level level)
{
    log_program = program;
    log_min_level = level;
}

void log_set_format(enum log_format f)
{
    log_current_format = f;
}

bool log_level_parse(const char *name, enum log_level *ret)
{
    static const char *const names[] = { "debug", "info", "warn", "error" };

    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        if (str_eq(name, names[i])) {
            *ret = (enum log_level)i;
            return true;
        }
    return false;
}

bool log_format_parse(const char *name, enum log_format *ret)
{
    if (!str_eq(name, "text") && !str_eq(name, "json"))
        return false;
    *ret = name[0] == 'j' ? LOG_JSON : LOG_TEXT;
    return true;
}

static bool log_has_id(const char *id)
{
    return id && *id;
}

static void log_add_escaped(struct buf *out, const char *msg)
{
    for (const char *p = msg; *p; p++)
        if ((unsigned char)*p < 0x20 || *p == 0x7f)
            buf_addf(out, "\\x%02x", (unsigned char)*p);
        else
            buf_add(out, p, 1);
}

static void write_text(struct buf *out, enum log_level level, const struct log_ids *about, const char *msg)
{
    const char *const ids[][2] = { { "request", about->request },
                                   { "sandbox", about->sandbox },
                                   { "execution", about->execution } };
    const char *before = " (";
    char time[32];

    if (log_current_format == LOG_PLAIN)
        buf_addf(out, "%s: %s: ", log_program, log_level_names[level]);
    else
        buf_addf(out, "%s %s %s: ", clock_rfc3339(clock_real_ns(), time), log_level_names[level], log_program);
    log_add_escaped(out, msg);
    for (size_t i = 0; i < ARRAY_LEN(ids); i++) {
        if (!log_has_id(ids[i][1]))
            continue;
        buf_addf(out, "%s%s ", before, ids[i][0]);
        log_add_escaped(out, ids[i][1]);
        before = ", ";
    }
    buf_adds(out, before[0] == ',' ? ")\n" : "\n");
}

static void log_write_json_line(struct buf *out, enum log_level level, const struct log_ids *about, const char *msg)
{
    struct jsonw w;
    char time[32];

    jsonw_init(&w, out, 0);
    jsonw_object(&w);
    jsonw_kstr(&w, "time", clock_rfc3339(clock_real_ns(), time));
    jsonw_kstr(&w, "level", log_level_names[level]);
    jsonw_kstr(&w, "program", log_program);
    jsonw_ku64(&w, "pid", (uint64_t)getpid());
    jsonw_kstr(&w, "message", msg);
    if (log_has_id(about->request))
        jsonw_kstr(&w, "requestId", about->request);
    if (log_has_id(about->sandbox))
        jsonw_kstr(&w, "sandbox", about->sandbox);
    if (log_has_id(about->execution))
        jsonw_kstr(&w, "execution", about->execution);
    jsonw_end_object(&w);
    buf_adds(out, "\n");
}

static void log_write_line(enum log_level level, const struct log_ids *about, const char *msg)
{
    auto_buf line = { 0 };

    (log_current_format == LOG_JSON ? log_write_json_line : write_text)(&line, level, about, msg);
    if (write(STDERR_FILENO, line.data, line.len) < 0)
        return; /* there is no other place to report it */
}

#define MSG_MAX 512

void log_write(enum log_level level, const char *fmt, ...)
{
    char msg[MSG_MAX];
    va_list ap;

    if (level < log_min_level)
        return;
    va_start(ap, fmt);
    vsnprintf(msg, sizeof(msg), fmt, ap);
    va_end(ap);
    log_write_line(level, &(struct log_ids){ 0 }, msg);
}

void log_write_with_ids(enum log_level level, const struct log_ids *about, const char *fmt, ...)
{
    char msg[MSG_MAX];
    va_list ap;

    if (level < log_min_level)
        return;
    va_start(ap, fmt);
    vsnprintf(msg, sizeof(msg), fmt, ap);
    va_end(ap);
    log_write_line(level, about, msg);
}
