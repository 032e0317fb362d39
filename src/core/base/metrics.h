/* metrics.h - writes metrics in the Prometheus text format. Every name gets the prefix "cove_".
 *
 * A kind that is NULL follows from the name: a counter if it ends with "_total", otherwise a
 * gauge. Durations are given in nanoseconds and written in seconds. Labels have their braces, or
 * are "". */
#pragma once

#include "core/base/buf.h"
#include "core/base/histogram.h"

/* The head of a family; its values follow. */
void metrics_family(struct buf *out, const char *name, const char *kind, const char *help);
/* One value of a family. */
void metrics_value(struct buf *out, const char *name, const char *labels, uint64_t v);
void metrics_seconds(struct buf *out, const char *name, const char *labels, uint64_t ns);
/* One series of a histogram; labels: without braces, or "". */
void metrics_histogram(struct buf *out, const char *name, const char *labels, const struct histogram *h);
/* A family with one value. */
void metrics_number(struct buf *out, const char *name, const char *help, uint64_t v);
void metrics_duration(struct buf *out, const char *name, const char *help, uint64_t ns);
