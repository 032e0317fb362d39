/* file_transfer.h - the state of one request about files. files.c handles metadata and names,
 * file_content.c transfers content, file_watch.c streams changes. */
#pragma once

#include "server/api/api_internal.h"
#include "server/api/directory_page.h"
#include "server/api/message_stream.h"

struct file_transfer {
    struct http_req *req;
    struct api *api;
    char sandbox[ID_SIZE]; /* a copy: it outlives the request, which is freed when answered */
    const char *path, *move_to;
    json_t *body;
    void (*start_fn)(struct file_transfer *t, struct sandbox_handle *sandbox);
    struct files_job *job;
    bool holds_sandbox; /* until manager_release_sandbox */
    uint64_t limit;
    struct directory_page page;
    uint32_t mode, flags;
    struct files_entry entry;
    bool answer_begun; /* the response has begun */
    int stat_attempts; /* retries after the file changed before it was read */
    int settle_waits;  /* waits for the kernel's clock to pass the file's last change */
    struct ev_timer settle_timer;
    int status;
    uint64_t from, len, sent;
    struct open_stream open_stream;
    struct message_stream messages; /* file_watch.c */
    struct buf out;
    struct jsonw w;
};

void file_transfer_free(struct file_transfer *t);
void file_transfer_refuse(struct file_transfer *t, const struct err *err);
void file_transfer_on_client_gone(void *arg); /* http_on_client_gone: the client disconnected */
void file_transfer_begin(struct file_transfer *t,
                         void (*start)(struct file_transfer *t, struct sandbox_handle *sandbox));
void file_transfer_answer(struct file_transfer *t); /* sends t->out */
/* NULL: the request was refused. The path comes from the query. */
struct file_transfer *file_transfer_from_query(struct http_req *req, struct api *api, const char *const *query);
int file_transfer_read_flag(const struct http_req *req, const char *name, uint32_t bit, uint32_t *flags,
                            struct err *err);
const char *file_transfer_kind_name(char kind);
int file_transfer_check_path(const char *path, const char *name, struct err *err); /* absolute, not too long */

/* file_content.c */
void file_content_read(struct http_req *req, void *ctx);
void file_content_write(struct http_req *req, void *ctx);
void file_content_read_tar(struct http_req *req, void *ctx);
void file_content_write_tar(struct http_req *req, void *ctx);

/* file_watch.c */
void file_watch_start(struct http_req *req, void *ctx);
