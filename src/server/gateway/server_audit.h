/* server_audit.h - the audit trail of coved: opened and compared with the checkpoint in the store.
 * The server's own actions are recorded here; requests are recorded by audit_trail.h. */
#pragma once

#include "server/audit/audit.h"
#include "server/audit/webhook.h"
#include "store/store.h"

struct server_audit;

struct server_audit_settings {
    const char *state_dir; /* the files are in its audit/ */
    bool sync_full;
    uint64_t segment_max, keep_max;
    const char *webhook;              /* URL for security events; "": none */
    const char *const *webhook_allow; /* see webhook_settings.allow */
};

/* Runs the loop until the store has replied, so call it before ev_run. */
int server_audit_open(struct ev *ev, struct store *store, const struct server_audit_settings *set,
                      struct server_audit **ret, struct err *err);
void server_audit_close(struct server_audit *r); /* call it before the store is closed; NULL is accepted */

struct audit *server_audit_log(struct server_audit *r);       /* NULL: no audit trail */
struct webhook *server_audit_webhook(struct server_audit *r); /* NULL: no webhook */
bool server_audit_is_damaged(const struct server_audit *r);   /* the files did not match the checkpoint in the store */

/* Records an action that no request caused. details: a JSON object, or NULL. r may be NULL in
 * both. */
void server_audit_record(struct server_audit *r, const char *action, const char *details);
/* The egress proxy added the secret `count` times since the last record about it. */
void server_audit_secret_used(struct server_audit *r, const char *owner, const char *sandbox, const char *name,
                              const char *host, uint32_t count);
void server_audit_sandbox_ended(struct server_audit *r, const char *id, const char *owner, const char *ended_by,
                                const struct err *why);
