/* transfer.h - one request about files while it is carried out: files.c answers with names, bytes.c moves bytes,
 * watch.c tells what happens. */
#pragma once

#include "api/inside.h"
#include "api/listing.h"

struct transfer {
    struct http_req *req;
    struct api *api;
    char sandbox[ID_SIZE]; /* outlives the request, which is gone when it is answered */
    const char *path, *to;
    json_t *body;
    void (*start)(struct transfer *t, struct box *box);
    struct files_job *job;
    bool used; /* the sandbox is ours until manager_release */
    uint64_t limit;
    struct listing listing;
    uint32_t mode, flags;
    struct files_entry entry;
    bool begun; /* the answer */
    int looks;  /* at a file that changed before it was read */
    int status;
    uint64_t from, len, sent;
    bool sse; /* watch.c */
    struct api_live live;
    struct ev_timer heartbeat;
    struct buf out;
    struct jsonw w;
};

void transfer_free(struct transfer *t);
void transfer_refuse(struct transfer *t, const struct err *err);
void transfer_gone(void *arg); /* http_on_gone: nobody wants the rest */
void transfer_begin(struct transfer *t, void (*start)(struct transfer *t, struct box *box));
void transfer_answer(struct transfer *t); /* with t->out */
/* NULL: refused. The path is that of the query. */
struct transfer *transfer_of_path(struct http_req *req, struct api *api, const char *const *query);
int transfer_flag(const struct http_req *req, const char *name, uint32_t bit, uint32_t *flags, struct err *err);
const char *transfer_kind(char kind);
int transfer_check_path(const char *path, const char *name, struct err *err); /* absolute, and not too long */

/* bytes.c */
void bytes_read(struct http_req *req, void *ctx);
void bytes_write(struct http_req *req, void *ctx);
void bytes_tar_out(struct http_req *req, void *ctx);
void bytes_tar_in(struct http_req *req, void *ctx);

/* watch.c */
void watch_files(struct http_req *req, void *ctx);
