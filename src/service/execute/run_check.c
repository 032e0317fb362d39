/* The check of code, in the fresh interpreter that runs the code afterwards.
 *
 * The interpreter parses the code and reports what it would use; only then is the code sent for
 * execution. So the check needs no second sandbox, and no earlier code can influence it. The
 * answer is hostile input, because the parser works on hostile text: an answer that is malformed,
 * late or missing refuses the code. The walls are up during the check as during the execution. */
#include "service/execute/executor_internal.h"

#include "core/base/clock.h"

#include <stdio.h>

void run_check_start(struct run *r)
{
    r->check_began_ns = clock_mono_ns();
    r->is_checking = true;
    language_kernel_check(&r->kernel, &(struct language_kernel_code){ .id = r->id, .code = r->request.code },
                          r->request.check_has_data);
}

static void run_check_write_hint(struct run *r)
{
    const char *alternative = code_report_alternative(r->report);

    snprintf(r->hint, sizeof(r->hint), "%s%s%sTo run the code as it is, repeat the request with \"tier\": \"full\".",
             alternative ? "Safe alternative: " : "", alternative ? alternative : "", alternative ? "\n" : "");
}

static void run_check_count(struct run *r)
{
    struct executor_stats *stats = &r->executor->stats;
    const struct report_violation *v = code_report_first_refusal(r->report);

    histogram_add(&stats->checks, clock_mono_ns() - r->check_began_ns);
    if (code_report_is_safe(r->report))
        stats->checks_passed++;
    else
        stats->checks_refused[v ? v->rule : REPORT_RULE_CHECK_FAILED]++;
}

/* True: the code may run. */
static bool run_check_finish(struct run *r)
{
    bool safe = code_report_is_safe(r->report);

    r->is_checking = false;
    run_check_count(r);
    if (safe && r->request.check == RUN_CHECK_FIRST)
        return true;
    r->is_answered_by_check = true;
    if (r->request.check == RUN_CHECK_FIRST) {
        r->has_error = true;
        (void)code_report_refusal(r->report, &r->error);
        run_check_write_hint(r);
        run_report_started(r);
    }
    run_complete_with_result(r);
    return false;
}

bool run_check_read_answer(struct run *r, const struct kernel_event *e)
{
    struct err err = { 0 };

    r->report = code_report_new("python", REPORT_FULL);
    if (e->kind != KERNEL_EVENT_REPORT || code_report_read(r->report, json_object_get(e->root, "report"), &err) < 0)
        code_report_add(r->report, REPORT_RULE_CHECK_FAILED, 0, 0, "");
    return run_check_finish(r);
}

void run_check_fail(struct run *r)
{
    r->report = code_report_new("python", REPORT_FULL);
    code_report_add(r->report, REPORT_RULE_CHECK_FAILED, 0, 0, "");
    (void)run_check_finish(r);
}
