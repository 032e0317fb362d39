/* line_reader.h - reads lines from a descriptor that the loop shares with other processes, such as
 * standard input: its flags are not changed. */
#pragma once

#include "core/base/base.h"
#include "core/ev/ev.h"

struct line_reader;

struct line_reader_ops {
    /* Without the line feed and a carriage return before it; borrowed. */
    void (*on_line)(void *arg, const char *line, size_t len);
    void (*on_too_long)(void *arg); /* instead of on_line, once for each such line */
    void (*on_end)(void *arg);      /* no more input; a last line without line feed was reported before */
};

struct line_reader *line_reader_new(struct ev *ev, int fd, size_t line_max, const struct line_reader_ops *ops,
                                    void *arg);
void line_reader_free(struct line_reader *r);
DEFINE_AUTO(line_reader, line_reader_free);
/* Between hold and release no input is read; lines that were read already are still reported. */
void line_reader_hold(struct line_reader *r, bool hold);
