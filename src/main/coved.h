/* coved.h - what the files of coved share. */
#pragma once

#include "server/api/api.h"
#include "server/api/server_audit.h"
#include "server/auth/auth.h"
#include "core/base/buf.h"
#include "main/conf/conf.h"
#include "core/ev/ev.h"
#include "service/execute/executor.h"
#include "server/http/server.h"
#include "service/manager.h"
#include "main/serve/server_paths.h"
#include "store/wallclock_guard.h"
#include "store/store.h"
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
    struct store_pool default_pool;
    struct api *api;
    struct http_server *http;
    struct tls_server *tls;       /* NULL: the address is served without */
    int tls_source;               /* whoever reads its files for us; -1: nobody, we do */
    struct buf plain_http_answer; /* the answer to those who speak without it */
    struct ev_timer gc_timer;
    struct wallclock_guard wallclock;
    int ready_fd; /* of whoever started us; -1: nobody wants to know */
    uint64_t nsockets;
    struct ev_timer end_timeout;
    bool stopping, ends_sandboxes;
};

/* From the words it was started with; pr tells all that is wrong with them. */
int coved_read_settings(struct coved *d, int argc, char **argv, struct problems *pr);
void coved_count_sockets(struct coved *d);
/* Every privilege that it might have been started with. ERR_DENIED as root. */
int coved_drop_privileges(struct err *err);

int coved_open_listeners(struct coved *d, struct err *err);
