/* server_audit.h - the audit log of coved: opened against what the store remembers of it, and fed with what the server
 * does of its own accord. What requests do is recorded by src/server/api. */
#pragma once

#include "server/audit/audit.h"
#include "server/audit/webhook.h"
#include "service/manager.h"
#include "store/store.h"

struct server_audit;

struct server_audit_settings {
    const char *state_dir; /* the log lies in its audit/ */
    bool sync_full;
    uint64_t segment_max, keep_max;
    const char *webhook;              /* for security events; "" is none */
    const char *const *webhook_allow; /* as webhook.h has it */
};

/* Turns the loop until the store has answered, so it comes before ev_run. */
int server_audit_open(struct ev *ev, struct store *store, const struct server_audit_settings *set,
                      struct server_audit **ret, struct err *err);
void server_audit_close(struct server_audit *r); /* before the store is closed; NULL is accepted */

struct audit *server_audit_log(struct server_audit *r);       /* NULL without one */
struct webhook *server_audit_webhook(struct server_audit *r); /* NULL without one */
bool server_audit_is_damaged(const struct server_audit *r);   /* the log was not what is known of it */

/* Something that nobody asked for. details: a JSON object, or NULL. All accept NULL. */
void server_audit_record(struct server_audit *r, const char *action, const char *details);
void server_audit_sandbox_ended(struct server_audit *r, const char *id, const char *owner, enum ended_by by,
                                const struct err *why);
