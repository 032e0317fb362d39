/* log.h - one line per event on standard error. Programs that are not servers stay silent below LOG_WARN. */
#pragma once

#include "base/base.h"

enum log_level { LOG_DEBUG, LOG_INFO, LOG_WARN, LOG_ERROR };

void log_setup(const char *program, enum log_level level);
void log_write(enum log_level level, const char *fmt, ...) PRINTF_LIKE(2, 3);
#define log_debug(...) log_write(LOG_DEBUG, __VA_ARGS__)
#define log_info(...) log_write(LOG_INFO, __VA_ARGS__)
#define log_warn(...) log_write(LOG_WARN, __VA_ARGS__)
#define log_error(...) log_write(LOG_ERROR, __VA_ARGS__)
