/* recorder.h - the audit log of coved: opened against what the store remembers of it, and fed with what the server does
 * of its own accord. What requests do is recorded by src/api. */
#pragma once

#include "audit/audit.h"
#include "audit/webhook.h"
#include "sandbox/manager.h"
#include "store/store.h"

struct recorder;

struct recorder_settings {
    const char *state_dir; /* the log lies in its audit/ */
    bool sync_full;
    uint64_t segment_max, keep_max;
    const char *webhook;              /* for security events; "" is none */
    const char *const *webhook_allow; /* as webhook.h has it */
};

/* Turns the loop until the store has answered, so it comes before ev_run. */
int recorder_open(struct ev *ev, struct store *store, const struct recorder_settings *set, struct recorder **ret,
                  struct err *err);
void recorder_close(struct recorder *r); /* before the store is closed; NULL is accepted */

struct audit *recorder_audit(struct recorder *r);     /* NULL without one */
struct webhook *recorder_webhook(struct recorder *r); /* NULL without one */
bool recorder_damaged(const struct recorder *r);      /* the log was not what is known of it */

/* Something that nobody asked for. details: a JSON object, or NULL. All accept NULL. */
void recorder_note(struct recorder *r, const char *action, const char *details);
void recorder_sandbox_ended(struct recorder *r, const char *id, const char *owner, enum ended_by by,
                            const struct err *why);
