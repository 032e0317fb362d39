/* kernel_receipt.h - the receipt of one request that a language kernel has executed. */
#pragma once

#include "service/language_kernel.h"

/* The figures of the request. */
struct kernel_figures {
    const char *execution, *request;
    bool final; /* no sums of the request follow later */
    uint64_t started_real_ns, wall_ns;
    uint64_t cpu_base_ns;  /* CPU counter of the sandbox at its start; SANDBOX_USAGE_UNKNOWN: not known */
    const char *cpu_why;   /* why CPU time is not known */
    const char *other_why; /* why the figures of the process as a whole are missing */
    uint64_t wall_limit_ms, cpu_limit_ms, output_limit; /* 0: no limit */
    uint64_t stdout_bytes, stderr_bytes, dropped_bytes;
};
void kernel_receipt_make(const struct language_kernel *k, const struct kernel_figures *f, enum ended_by by,
                         int exit_code, int signo, struct receipt *ret);
/* Sets the denials and the network of the last request, for an owner with collects_denials. Valid
 * in on_finished and on_died; the lists are borrowed from the language kernel. */
void kernel_receipt_set_denials(const struct language_kernel *k, struct receipt *ret);
/* The same for the network alone. */
void kernel_receipt_set_network(const struct language_kernel *k, struct receipt *ret);
