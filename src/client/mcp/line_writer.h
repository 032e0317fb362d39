/* line_writer.h - writes lines to a descriptor that the loop shares with other processes, such as
 * standard output, without blocking and without a change of its flags. */
#pragma once

#include "core/base/base.h"
#include "core/ev/ev.h"

struct line_writer;

struct line_writer_ops {
    void (*on_pressure)(void *arg, bool high); /* more than the high mark waits; or little enough again */
    void (*on_written)(void *arg);             /* nothing waits any more */
    void (*on_closed)(void *arg);              /* the reader is gone; later lines are dropped */
};

struct line_writer *line_writer_new(struct ev *ev, int fd, size_t high_mark, const struct line_writer_ops *ops,
                                    void *arg);
void line_writer_free(struct line_writer *w);
DEFINE_AUTO(line_writer, line_writer_free);
/* Line breaks in the text become spaces, which is the same JSON. The callbacks follow
 * later, from the loop. */
void line_writer_add(struct line_writer *w, const char *text, size_t len);
size_t line_writer_waiting(const struct line_writer *w); /* bytes */
