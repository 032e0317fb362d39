/* rules.h - what a call to the store does, in C over the primitive statements of backend.h. Every
 * rule here holds for every backend. */
#pragma once

#include "store/requests.h"
#include "store/tenants.h"

/* operations.c. Runs one call in the transaction of its batch: a call that fails leaves no change
 * in it. Results are written into the call. */
int store_run(struct store_db *db, struct store_request *c, struct err *err);

/* row_rules.c */
int row_rules_insert(struct store_db *db, struct store_request *c, struct err *err);
int row_rules_get(struct store_db *db, struct store_request *c, struct err *err);
int row_rules_update(struct store_db *db, struct store_request *c, struct err *err);
int row_rules_list(struct store_db *db, struct store_request *c, struct err *err);
int row_rules_put(struct store_db *db, struct store_request *c, struct err *err);
int row_rules_delete(struct store_db *db, struct store_request *c, struct err *err);
int row_rules_idem_claim(struct store_db *db, struct store_request *c, struct err *err);
int row_rules_idem_finish(struct store_db *db, struct store_request *c, struct err *err);
int row_rules_idem_rename(struct store_db *db, struct store_request *c, struct err *err);
int row_rules_idem_drop(struct store_db *db, struct store_request *c, struct err *err);
int row_rules_meta_get(struct store_db *db, struct store_request *c, struct err *err);
int row_rules_meta_put(struct store_db *db, struct store_request *c, struct err *err);
int row_rules_key_touch(struct store_db *db, struct store_request *c, struct err *err);
/* The row of c->table with the key c->id, if it belongs to c->owner. */
struct row_query row_rules_query(const struct store_request *c);

/* sandbox_rules.c */
int sandbox_rules_check_insert(struct store_db *db, const struct store_request *c, struct err *err);
/* The name of the sandbox in c->row is free among the living sandboxes of `owner`. */
int sandbox_rules_check_name(struct store_db *db, const struct store_request *c, const char *owner, struct err *err);
/* The call writes metadata of a sandbox. */
bool sandbox_rules_has_metadata(const struct store_request *c);
/* Replaces the pairs that lists are filtered by. row: the sandbox as it is in the database now. */
int sandbox_rules_write_metadata(struct store_db *db, const struct store_request *c, const struct store_sandbox *row,
                                 struct err *err);
int sandbox_rules_check_template_unused(struct store_db *db, const char *name, struct err *err);

/* tenant_rules.c */
/* The rows that a new key, user or role refers to exist. */
int tenant_rules_check_insert(struct store_db *db, const struct store_request *c, struct err *err);
int tenant_rules_check_user_update(struct store_db *db, struct store_request *c, struct err *err);
int tenant_rules_remove(struct store_db *db, struct store_request *c, struct err *err);
int tenant_rules_login(struct store_db *db, struct store_request *c, struct err *err);
/* Whether `user` is an enabled admin of its tenant, and whether it still is one after an update. */
bool tenant_rules_is_admin(const struct store_user *user);
bool tenant_rules_stays_admin(const struct store_user *user, const struct store_user *update, uint32_t set);

/* usage_rules.c */
/* The call inserts a row that has ended, or an update of it may end one. */
bool usage_rules_is_end(const struct store_request *c);
/* The row that the call is going to end is live. */
int usage_rules_was_alive(struct store_db *db, const struct store_request *c, bool *ret, struct err *err);
/* Counts the end of a row, once. row: as it is in the database now. */
int usage_rules_count_end(struct store_db *db, const struct store_request *c, const void *row, struct err *err);
int usage_rules_record_cpu(struct store_db *db, struct store_request *c, struct err *err);
int usage_rules_add(struct store_db *db, struct store_request *c, struct err *err);
int usage_rules_list(struct store_db *db, struct store_request *c, struct err *err);
/* Adds old usage of single sandboxes to the usage of their users. *count: merged rows are added. */
int usage_rules_merge_old(struct store_db *db, uint64_t before_ms, uint32_t limit, uint64_t *count, struct err *err);
int usage_rules_budget_put(struct store_db *db, struct store_request *c, struct err *err);
int usage_rules_budget_list(struct store_db *db, struct store_request *c, struct err *err);

/* The rest of a span of time, which is read hour by hour. A span is at most 366 days long: a wall
 * clock that was set ahead must not fill the table. */
struct usage_span {
    uint64_t from_ms, to_ms;
};
struct usage_span usage_span_between(uint64_t from_ms, uint64_t to_ms);
/* The next hour, and the milliseconds of the span in it. False: the span is over. */
bool usage_span_next(struct usage_span *s, uint64_t *ret_hour_ms, uint64_t *ret_ms);
/* A report under construction: adds figures to the row with the same hour, tenant, user and
 * sandbox. */
void usage_report_add(struct row_list *report, const struct store_usage *u);
/* Sorts and merges the rows; keeps at most `limit` of them. */
void usage_report_finish(struct row_list *report, size_t limit);

/* script_rules.c */
int script_rules_keep(struct store_db *db, struct store_request *c, struct err *err);
int script_rules_find(struct store_db *db, struct store_request *c, struct err *err);
int script_rules_search(struct store_db *db, struct store_request *c, struct err *err);

/* secret_rules.c */
int secret_rules_put(struct store_db *db, struct store_request *c, struct err *err);
int secret_rules_add_use(struct store_db *db, struct store_request *c, struct err *err);
int secret_rules_delete(struct store_db *db, struct store_request *c, struct err *err);

/* retention_rules.c */
int retention_rules_collect(struct store_db *db, struct store_request *c, struct err *err);
