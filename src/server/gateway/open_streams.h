/* open_streams.h - responses without a known end; each is closed when its credential becomes
 * invalid. */
#pragma once

#include "server/gateway/gateway.h"

struct open_stream {
    struct gateway *gateway; /* NULL after the end */
    struct open_stream *next, **list_link;
    char key_id[ID_SIZE], user[ID_SIZE], owner[STORE_OWNER_MAX + 1]; /* credential and tenant */
    bool is_delegated;                                               /* opened with a delegated token */
    bool is_endless; /* ends only when closed: a draining server closes it instead of waiting */
    struct ev_timer expiry_timer;
    void (*on_end)(void *arg, const struct err *why);
    void *arg;
};
/* From this call until open_stream_unregister, `end` is called at most once: when the credential is
 * revoked or expires, or when the server stops. */
void open_stream_register(struct open_stream *l, struct gateway *gateway, const struct principal *principal,
                          void (*end)(void *arg, const struct err *why), void *arg);
void open_stream_unregister(struct open_stream *l);

/* For auth_settings: closes every open stream of this key, user or tenant. */
void open_streams_end_revoked(struct gateway *gateway, const char *id);
void open_streams_end_delegated(struct gateway *gateway); /* after all delegated tokens were revoked */
/* Closes every response that would never end by itself. Call it before http_server_drain. */
void open_streams_end_endless(struct gateway *gateway);
