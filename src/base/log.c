/* A line is built whole and written with one call, so that lines of several processes never mix. Control characters in
 * the message are escaped: a log line is one line, whatever a sandbox managed to put into a name. */
#include "base/log.h"

#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

static const char *prog = "cove";
static enum log_level least = LOG_WARN;

void log_setup(const char *program, enum log_level level)
{
    prog = program;
    least = level;
}

void log_write(enum log_level level, const char *fmt, ...)
{
    static const char *const names[] = { "debug", "info", "warning", "error" };
    char msg[512], line[1400];
    va_list ap;

    if (level < least)
        return;
    va_start(ap, fmt);
    vsnprintf(msg, sizeof(msg), fmt, ap);
    va_end(ap);
    int n = snprintf(line, sizeof(line) - 1, "%s: %s: ", prog, names[level]);
    for (const char *p = msg; *p && (size_t)n < sizeof(line) - 6; p++) {
        unsigned char c = (unsigned char)*p;

        if (c < 0x20 || c == 0x7f)
            n += snprintf(line + n, 5, "\\x%02x", c);
        else
            line[n++] = (char)c;
    }
    line[n++] = '\n';
    if (write(STDERR_FILENO, line, (size_t)n) < 0)
        return; /* nowhere left to complain */
}
