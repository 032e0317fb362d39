#include "client/cli/run_notes.h"

#include "client/cli/denial_notes.h"
#include "client/cli/host_facts.h"
#include "client/cli/report.h"

#include "core/base/fd.h"
#include "core/base/str.h"

/* A hint names the end too. */
static void run_notes_end(const struct run_options *o, const struct receipt *rc, const char *hint)
{
    char text[LIMIT_TEXT];
    const uint64_t *v = o->limits.v;

    switch (hint[0] ? ENDED_EXIT : rc->ended_by) {
    case ENDED_TIMEOUT:
        report_note("ended: timeout after %s (--timeout)", limit_print(LIMIT_WALL, v[LIMIT_WALL], text));
        break;
    case ENDED_CPU:
        report_note("ended: used more than %s of processor time (--cpu-time)",
                    limit_print(LIMIT_CPU_TIME, v[LIMIT_CPU_TIME], text));
        break;
    case ENDED_MEMORY:
        report_note("ended: used more than %s of memory (--memory)", limit_print(LIMIT_MEMORY, v[LIMIT_MEMORY], text));
        break;
    case ENDED_LIFETIME:
        report_note("ended: the lifetime of the sandbox, %s, is over (--lifetime)",
                    limit_print(LIMIT_LIFETIME, v[LIMIT_LIFETIME], text));
        break;
    case ENDED_LOST:
        report_note("the sandbox was lost before the program ended");
        break;
    default:
        break;
    }
    if (rc->dropped_bytes && !hint[0])
        report_note("%s of output beyond the limit were dropped (--max-output)", str_size(rc->dropped_bytes, text));
}

static const char *run_notes_limit_flag(enum limit l)
{
    return limit_info(l)->flag;
}

bool run_notes_write_hint(const struct receipt *rc, const struct failure *texts, char ret[HINT_MAX])
{
    struct limit_hit hits[LIMIT_COUNT];
    auto_(python_modules) modules = NULL;
    struct hint_facts facts = { .place = HINT_RUN,
                                .has_program = hint_host_has_program,
                                .setting = run_notes_limit_flag };

    ret[0] = '\0';
    if (receipt_exit_code(rc) == 0)
        return false;
    if (failure_needs_modules(texts))
        modules = python_modules_scan();
    hint_facts_from_receipt(&facts, rc, hits);
    failure_fill_facts(texts, &facts);
    facts.modules = modules;
    return hint_write(&facts, ret);
}

/* A missing wall refuses the run; a limit that this host cannot enforce is reported here,
 * in one line. */
static void run_notes_limits(const struct run_options *o, const struct receipt *rc)
{
    auto_buf names = { 0 };
    uint64_t cpus = host_facts_processors();

    if (o->source[LIMIT_CPU] == RUN_OPTION_FROM_FLAG && o->limits.v[LIMIT_CPU] > cpus * 1000)
        report_note("--cpus: this host has only %" PRIu64 " processor%s, so the limit has no effect", cpus,
                    cpus == 1 ? "" : "s");
    for (int i = 0; i < LIMIT_COUNT; i++) {
        bool asked = o->chosen >> i & 1 || i == LIMIT_MEMORY || i == LIMIT_CPU || i == LIMIT_PIDS;

        if (asked && rc->enforced[i] < 2 && !limit_is_unlimited((enum limit)i, o->limits.v[i])) {
            const struct limit_info *info = limit_info((enum limit)i);

            buf_addf(&names, "%s%s%s (%s)", names.len ? ", " : "", info->flag ? "--" : "",
                     info->flag ? info->flag : info->name, rc->enforced[i] ? "in part" : "not at all");
        }
    }
    if (!names.len)
        return;
    /* The only cause that the user can often fix. */
    bool homeless = rc->rootless && str_eq(rc->cgroup, "none");
    report_note("this host does not fully enforce: %s%s%s", names.data, homeless ? "; " : "",
                homeless ? host_facts_cgroup_advice_here() : "");
}

void run_notes_print(const struct run_options *o, const struct receipt *rc, const struct failure *texts,
                     bool output_whole)
{
    char hint[HINT_MAX] = "";

    if (output_whole) {
        if (isatty(STDERR_FILENO) && run_notes_write_hint(rc, texts, hint) && hint_is_general(hint))
            hint[0] = '\0';
        run_notes_end(o, rc, hint);
    }
    run_notes_limits(o, rc);
    if (o->receipt || receipt_exit_code(rc) == 0)
        return;
    denial_notes_limits(rc, hint);
    denial_notes_calls(rc, false, hint);
    denial_notes_network(rc, hint);
    if (hint[0])
        hint_note(hint);
}

void run_notes_kept(const char *sandbox_id)
{
    auto_buf more = { 0 };

    report_note("sandbox %s is kept and frozen", sandbox_id);
    buf_addf(&more, "  cove shell %s   start a shell in it\n  cove rm %s      end it\n", sandbox_id, sandbox_id);
    fd_write_all(STDERR_FILENO, more.data, more.len);
}
