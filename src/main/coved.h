/* coved.h - what the files of coved share. */
#pragma once

#include "api/api.h"
#include "api/recorder.h"
#include "auth/auth.h"
#include "base/buf.h"
#include "conf/conf.h"
#include "ev/ev.h"
#include "executor/executor.h"
#include "http/server.h"
#include "sandbox/manager.h"
#include "serve/place.h"
#include "store/calendar.h"
#include "store/store.h"
#include "tls/server.h"

#define COVED_FIRST_SOCKET 3

struct coved {
    struct ev *ev;
    struct conf conf;
    struct place place;
    struct floor floor;
    struct store *store;
    struct recorder *recorder;
    struct auth *auth;
    struct manager *manager;
    struct pools *pools;
    struct executor *executor;
    struct store_pool own_pool;
    struct api *api;
    struct http_server *http;
    struct tls_server *tls; /* NULL: the address is served without */
    int tls_source;         /* whoever reads its files for us; -1: nobody, we do */
    struct buf without_tls; /* the answer to those who speak without it */
    struct ev_timer gc;
    struct calendar calendar;
    int ready_fd; /* of whoever started us; -1: nobody wants to know */
    uint64_t sockets;
    struct ev_timer patience;
    bool stopping, for_good;
};

/* From the words it was started with; pr tells all that is wrong with them. */
int coved_read_settings(struct coved *d, int argc, char **argv, struct problems *pr);
void coved_count_sockets(struct coved *d);
/* Every privilege that it might have been started with. ERR_DENIED as root. */
int coved_give_up(struct err *err);

int coved_open_listeners(struct coved *d, struct err *err);
