#include "core/base/metrics.h"

#include "core/base/mem.h"
#include "core/base/str.h"

static const char *metrics_kind(const char *name)
{
    static const char suffix[] = "_total";
    size_t n = strlen(name);

    return n >= sizeof(suffix) && str_eq(name + n - (sizeof(suffix) - 1), suffix) ? "counter" : "gauge";
}

void metrics_family(struct buf *out, const char *name, const char *kind, const char *help)
{
    buf_addf(out, "# HELP cove_%s %s\n# TYPE cove_%s %s\n", name, help, name, kind ? kind : metrics_kind(name));
}

void metrics_value(struct buf *out, const char *name, const char *labels, uint64_t v)
{
    buf_addf(out, "cove_%s%s %" PRIu64 "\n", name, labels, v);
}

void metrics_seconds(struct buf *out, const char *name, const char *labels, uint64_t ns)
{
    buf_addf(out, "cove_%s%s %" PRIu64 ".%09" PRIu64 "\n", name, labels, ns / (uint64_t)NS_PER_S,
             ns % (uint64_t)NS_PER_S);
}

void metrics_histogram(struct buf *out, const char *name, const char *labels, const struct histogram *h)
{
    const char *comma = labels[0] ? "," : "";
    auto_free char *sum = str_printf("%s_sum", name), *count = str_printf("%s_count", name);
    auto_free char *braced = labels[0] ? str_printf("{%s}", labels) : str_dup("");
    uint64_t n = 0;

    for (unsigned i = 0; i + 1 < HISTOGRAM_BUCKETS; i++) {
        n += h->counts[i];
        buf_addf(out, "cove_%s_bucket{%s%sle=\"%u.%03u\"} %" PRIu64 "\n", name, labels, comma, (1u << i) / 1000,
                 (1u << i) % 1000, n);
    }
    n += h->counts[HISTOGRAM_BUCKETS - 1];
    buf_addf(out, "cove_%s_bucket{%s%sle=\"+Inf\"} %" PRIu64 "\n", name, labels, comma, n);
    metrics_seconds(out, sum, braced, h->sum_ns);
    metrics_value(out, count, braced, n);
}

void metrics_number(struct buf *out, const char *name, const char *help, uint64_t v)
{
    metrics_family(out, name, NULL, help);
    metrics_value(out, name, "", v);
}

void metrics_duration(struct buf *out, const char *name, const char *help, uint64_t ns)
{
    metrics_family(out, name, NULL, help);
    metrics_seconds(out, name, "", ns);
}
