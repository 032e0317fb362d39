/* end_journal.h - the journal of ends that are acknowledged before the store commits them.
 *
 * An end that is in the journal survives a kill of this process: the next server replays it. */
#pragma once

#include "core/ev/ev.h"
#include "store/store.h"

/* The fields that an end changes in the row of its execution. */
#define EXECUTION_SET_ALL                                                                                             \
    (STORE_EXECUTION_SET_STATE | STORE_EXECUTION_SET_STARTED | STORE_EXECUTION_SET_OUTPUT | STORE_EXECUTION_SET_END | \
     STORE_EXECUTION_SET_RECEIPT)

struct end_journal;

/* Opens the journal in the directory and replays it; call it before anything is read from the
 * store. dir_fd is borrowed for the call; -1: the journal is not used. A journal that cannot be
 * opened is logged and not used. */
struct end_journal *end_journal_new(struct ev *ev, struct store *store, int dir_fd);
void end_journal_free(struct end_journal *j);
DEFINE_AUTO(end_journal, end_journal_free);

/* True: the end may be acknowledged. Its commit must follow, and then end_journal_committed(). */
bool end_journal_append(struct end_journal *j, const struct store_execution *row);
void end_journal_committed(struct end_journal *j); /* one journaled end is committed */
