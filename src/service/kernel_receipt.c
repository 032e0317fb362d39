/* A language kernel is one process for all its requests. The receipt of a request is that of the
 * process, with the figures that are known for the request in their place. */
#include "service/kernel_receipt.h"

#include "core/base/str.h"

void kernel_receipt_make(const struct language_kernel *k, const struct kernel_figures *f, enum ended_by by,
                         int exit_code, int signo, struct receipt *ret)
{
    struct receipt_figure missing = { .why = f->other_why };
    uint64_t cpu = sandbox_handle_cpu_ns(k->sandbox);

    *ret = *exec_handle_receipt(k->exec);
    ret->changes = NULL;
    ret->denials = NULL;
    ret->nchanges = ret->ndenials = 0;
    ret->egress = (struct receipt_egress){ .carrier = ret->egress.carrier };
    if (ret->network.mode != NETWORK_NONE)
        ret->egress.absent_why = f->other_why;
    (void)str_copy(ret->execution, sizeof(ret->execution), f->execution);
    (void)str_copy(ret->request, sizeof(ret->request), f->request ? f->request : "");
    ret->final = f->final;
    ret->ended_by = by;
    ret->exit_code = exit_code;
    ret->signal = signo;
    ret->started_real_ns = f->started_real_ns;
    ret->wall_ns = (struct receipt_figure){ .v = f->wall_ns };
    if (cpu == SANDBOX_USAGE_UNKNOWN || f->cpu_base_ns == SANDBOX_USAGE_UNKNOWN || cpu < f->cpu_base_ns)
        ret->cpu_ns = (struct receipt_figure){ .why = f->cpu_why };
    else
        ret->cpu_ns = (struct receipt_figure){ .v = cpu - f->cpu_base_ns };
    ret->memory_peak = ret->read_bytes = ret->write_bytes = ret->tasks_started = ret->pids_peak = missing;
    ret->pids_refused = ret->oom_kills = ret->throttled_ns = missing;
    ret->denials_why = ret->full_filesystems_why = f->other_why;
    ret->limits.v[LIMIT_WALL] = f->wall_limit_ms;
    ret->limits.v[LIMIT_CPU_TIME] = f->cpu_limit_ms;
    ret->limits.v[LIMIT_OUTPUT] = f->output_limit;
    ret->stdout_bytes = f->stdout_bytes;
    ret->stderr_bytes = f->stderr_bytes;
    ret->dropped_bytes = f->dropped_bytes;
}

void kernel_receipt_set_denials(const struct language_kernel *k, struct receipt *ret)
{
    const struct receipt *r = exec_handle_receipt(k->exec);

    ret->denials = r->denials;
    ret->ndenials = r->ndenials;
    ret->denials_more = r->denials_more;
    ret->denials_why = r->denials_why;
    kernel_receipt_set_network(k, ret);
}

void kernel_receipt_set_network(const struct language_kernel *k, struct receipt *ret)
{
    const struct receipt *r = exec_handle_receipt(k->exec);

    ret->network = r->network;
    ret->egress = r->egress;
}
