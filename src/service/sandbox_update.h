/* sandbox_update.h - a change to a living sandbox, as a merge patch: a member that is absent stays
 * as it is. */
#pragma once

#include "service/spec.h"

struct sandbox_update {
    bool sets_name;
    char name[SPEC_NAME_MAX + 1]; /* "": no name from now on */
    bool clears_metadata;         /* before metadata is applied */
    json_t *metadata;             /* pairs to set; null removes a pair; NULL: none */
    uint64_t lifetime_ms;         /* from now; 0: unchanged */
    bool sets_idle_timeout;
    uint64_t idle_timeout_ms; /* 0: no idle timeout */
    bool sets_idle_action;
    enum idle_action idle_action;
    bool sets_network;
    struct network_policy network; /* owns its text */
};

/* Reads the body of a request. The caller calls sandbox_update_done, also after a failure. */
int sandbox_update_read(const json_t *body, struct sandbox_update *ret, struct err *err);
void sandbox_update_done(struct sandbox_update *u);
struct sandbox_update *sandbox_update_copy(const struct sandbox_update *u); /* on the heap */
void sandbox_update_free(struct sandbox_update *u);

/* Applies the metadata of the update to *metadata; on an error, *metadata is unchanged. */
int sandbox_update_merge_metadata(const struct sandbox_update *u, json_t **metadata, struct err *err);
/* Members of the event that reports the update. */
void sandbox_update_json(const struct sandbox_update *u, struct jsonw *w);
