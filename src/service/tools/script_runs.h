/* script_runs.h - the executions of run_sandbox whose code is kept as a script if they succeed.
 *
 * An execution is followed to its end here and not by its call, which may have been answered
 * already. The result stays known for the latest executions, in memory only: after a restart of the
 * server, an execution that was running is finished without its code being kept. */
#pragma once

#include "service/script_cache.h"

struct ev;
struct manager;
struct script_runs;

struct script_runs *script_runs_new(struct manager *manager, struct script_cache *cache); /* borrowed */
/* Forgets all executions; before the manager is finished. */
void script_runs_finish(struct script_runs *s);
void script_runs_free(struct script_runs *s);

/* Follows an execution that was accepted. language: a constant string. */
void script_runs_add(struct script_runs *s, const struct store_execution *row, const char *language, const char *code);

struct script_run_state {
    bool is_settled;      /* the rest is known */
    char script[ID_SIZE]; /* "": not kept */
    char reason[120];     /* why it was not kept */
};
/* False: unknown, because it failed, was not started by run_sandbox or is not among the latest. */
bool script_runs_find(const struct script_runs *s, const char *execution, struct script_run_state *ret);
