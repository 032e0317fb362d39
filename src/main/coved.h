/* coved.h - internal interface of the files of coved. */
#pragma once

#include "server/api/api.h"
#include "server/gateway/gateway.h"
#include "server/gateway/server_audit.h"
#include "server/auth/auth.h"
#include "core/base/buf.h"
#include "main/conf/conf.h"
#include "core/ev/ev.h"
#include "service/execute/executor.h"
#include "server/http/server.h"
#include "service/template_cache.h"
#include "service/manager.h"
#include "main/serve/server_paths.h"
#include "store/wallclock_guard.h"
#include "store/store.h"
#include "service/tools/tools.h"
#include "server/mcp/mcp.h"
#include "server/tls/server.h"

#define COVED_FIRST_SOCKET 3

struct coved {
    struct ev *ev;
    struct conf conf;
    struct server_paths paths;
    struct operator_limits operator_limits;
    struct store *store;
    struct server_audit *recorder;
    struct auth *auth;
    struct manager *manager;
    struct pools *pools;
    struct executor *executor;
    struct template_cache *template_cache; /* of the tools; the api has its own */
    struct tools *tools;
    struct script_cache *script_cache;
    struct secrets *secrets;
    bool secrets_loaded;
    struct err secrets_error;
    struct store_pool default_pools[2];
    struct gateway *gateway;
    struct api *api;
    struct mcp *mcp;
    struct http_server *http;
    struct tls_server *tls; /* NULL: no TLS on the TCP address */
    int tls_source;         /* socket of the process that reads the TLS files for coved; -1: coved reads them itself */
    struct buf plain_http_answer; /* response to a client that speaks plain HTTP to the TLS address */
    struct ev_timer gc_timer;
    struct wallclock_guard wallclock;
    int ready_fd; /* pipe to the process that started coved; -1: none */
    uint64_t nsockets;
    struct ev_timer end_timeout;
    bool stopping, ends_sandboxes;
};

/* Reads the settings from the command line. All errors are added to pr. */
int coved_read_settings(struct coved *d, int argc, char **argv, struct problems *pr);
void coved_count_sockets(struct coved *d);
/* How many of d->default_pools there are; 0: the setting is off. */
size_t coved_fill_default_pools(struct coved *d);
/* Adds the setting drivers.allowed to the operator limits. */
int coved_restrict_drivers(struct coved *d, struct err *err);
/* The same for egress.enabled and egress.openRanges. */
int coved_restrict_network(struct coved *d, struct err *err);
/* Drops every privilege that coved might have been started with. Fails with ERR_DENIED as root. */
int coved_drop_privileges(struct err *err);

int coved_open_listeners(struct coved *d, struct err *err);

/* The age and size of what is kept, by the settings. arg: the coved. */
void coved_fill_retention(void *arg, struct store_retention *ret);
int coved_open_wallclock(struct coved *d, struct err *err); /* reads the last trusted time */
void coved_collect_garbage(void *arg);                      /* now, and again every hour; arg: the coved */
