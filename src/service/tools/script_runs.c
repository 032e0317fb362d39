/* Code that waits for the end of its execution is bounded in bytes, and results are bounded in
 * number: the oldest results are forgotten first. */
#include "service/tools/script_runs.h"

#include "core/base/list.h"
#include "core/base/mem.h"
#include "core/base/str.h"
#include "policy/outcome.h"
#include "service/manager.h"

#include <stdio.h>

#define WAITING_BYTES (64 * MIB)
#define RESULTS_MAX 256u

/* Invariants: an entry that waits for the end of its execution has code and a watch; an entry that
 * is being kept has a call; a settled entry has none of them. */
struct script_run_entry {
    struct script_run_entry *next, **link;
    struct script_runs *runs;
    char execution[ID_SIZE], tenant[STORE_OWNER_MAX + 1], created_by[STORE_OWNER_MAX + 1];
    const char *language;
    char *code;
    struct execution_watch *watch;
    struct script_cache_call *call;
    struct script_run_state state;
};

struct script_runs {
    struct manager *manager;
    struct script_cache *cache;
    struct script_run_entry *entries; /* the newest first */
    size_t settled;
    uint64_t waiting_bytes;
};

struct script_runs *script_runs_new(struct manager *manager, struct script_cache *cache)
{
    struct script_runs *s = mem_new(struct script_runs);

    s->manager = manager;
    s->cache = cache;
    return s;
}

static void script_run_drop_code(struct script_run_entry *e)
{
    if (e->code)
        e->runs->waiting_bytes -= strlen(e->code);
    free(take_ptr(&e->code));
}

static void script_run_free(struct script_run_entry *e)
{
    linked_remove(e);
    e->runs->settled -= e->state.is_settled;
    execution_watch_free(e->watch);
    if (e->call)
        script_cache_detach(e->call);
    script_run_drop_code(e);
    free(e);
}

void script_runs_finish(struct script_runs *s)
{
    for (struct script_run_entry *e = s->entries, *next; e; e = next) {
        next = e->next;
        script_run_free(e);
    }
}

void script_runs_free(struct script_runs *s)
{
    if (s)
        script_runs_finish(s);
    free(s);
}

static void script_runs_forget_oldest(struct script_runs *s)
{
    struct script_run_entry *oldest = NULL;

    for (struct script_run_entry *e = s->entries; e; e = e->next)
        if (e->state.is_settled)
            oldest = e;
    if (oldest && s->settled > RESULTS_MAX)
        script_run_free(oldest);
}

static void script_run_settle(struct script_run_entry *e, const char *reason)
{
    script_run_drop_code(e);
    e->state.is_settled = true;
    e->runs->settled++;
    if (reason)
        snprintf(e->state.reason, sizeof(e->state.reason), "%s", reason);
    script_runs_forget_oldest(e->runs);
}

static void script_run_on_kept(void *arg, const struct err *err, const struct store_script *row)
{
    struct script_run_entry *e = arg;

    e->call = NULL;
    if (!err)
        (void)str_copy(e->state.script, sizeof(e->state.script), row->id);
    script_run_settle(e, err ? err->msg : NULL);
}

static void script_run_end(struct script_run_entry *e, const struct store_execution *row)
{
    const struct script_run run = { .tenant = e->tenant,
                                    .language = e->language,
                                    .code = e->code,
                                    .execution = e->execution,
                                    .created_by = e->created_by };

    if (!row->outcome || !str_eq(row->outcome, outcome_name(OUTCOME_SUCCESS))) {
        script_run_free(e);
        return;
    }
    e->call = script_cache_keep(e->runs->cache, &run, script_run_on_kept, e);
    script_run_drop_code(e);
}

static void script_run_on_change(void *arg, const struct store_execution *ended)
{
    if (ended)
        script_run_end(arg, ended);
}

void script_runs_add(struct script_runs *s, const struct store_execution *row, const char *language, const char *code)
{
    struct script_run_entry *e = mem_new(struct script_run_entry);

    e->runs = s;
    e->language = language;
    (void)str_copy(e->execution, sizeof(e->execution), row->id);
    (void)str_copy(e->tenant, sizeof(e->tenant), row->owner);
    (void)str_copy(e->created_by, sizeof(e->created_by), row->created_by ? row->created_by : "");
    linked_push(&s->entries, e);
    if (s->waiting_bytes + strlen(code) > WAITING_BYTES) {
        script_run_settle(e, "too much code waits for its end; run it again later");
        return;
    }
    e->code = str_dup(code);
    s->waiting_bytes += strlen(code);
    if (!row->ended_ms)
        e->watch = manager_watch_execution(s->manager, row->owner, row->sandbox, row->id, script_run_on_change, e);
    if (row->ended_ms)
        script_run_end(e, row);
    else if (!e->watch)
        script_run_free(e);
}

bool script_runs_find(const struct script_runs *s, const char *execution, struct script_run_state *ret)
{
    for (const struct script_run_entry *e = s->entries; e; e = e->next)
        if (str_eq(e->execution, execution)) {
            *ret = e->state;
            return true;
        }
    return false;
}
