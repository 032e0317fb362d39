/* log.h - one line per event on standard error. Programs that are not servers log only LOG_WARN and
 * above.
 *
 * Servers choose a format with log_set_format: LOG_TEXT for people, LOG_JSON for log collectors. An
 * event of a request, a sandbox or an execution carries its id, so that one search finds all events
 * of that object. */
#pragma once

#include "core/base/base.h"

enum log_level { LOG_DEBUG, LOG_INFO, LOG_WARN, LOG_ERROR };
enum log_format {
    LOG_PLAIN, /* cove: warning: message */
    LOG_TEXT,  /* 2026-01-31T12:00:00.123Z warning coved: message (request rq..., sandbox sb...) */
    LOG_JSON,  /* {"time":..., "level":..., "program":..., "pid":..., "message":..., "requestId":..., "sandbox":...} */
};

struct log_ids { /* NULL or "" where the event has no such id */
    const char *request, *sandbox, *execution;
};

void log_setup(const char *program, enum log_level level);
void log_set_format(enum log_format form);
bool log_level_parse(const char *name, enum log_level *ret);   /* debug, info, warn, error */
bool log_format_parse(const char *name, enum log_format *ret); /* text, json */

void log_write(enum log_level level, const char *fmt, ...) PRINTF_LIKE(2, 3);
void log_write_with_ids(enum log_level level, const struct log_ids *about, const char *fmt, ...) PRINTF_LIKE(3, 4);
#define log_debug(...) log_write(LOG_DEBUG, __VA_ARGS__)
#define log_info(...) log_write(LOG_INFO, __VA_ARGS__)
#define log_warn(...) log_write(LOG_WARN, __VA_ARGS__)
#define log_error(...) log_write(LOG_ERROR, __VA_ARGS__)
