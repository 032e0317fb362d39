/* file_transfer.h - the state of one request about files. files.c handles metadata and names,
 * file_content.c transfers content, file_watch.c streams changes. */
#pragma once

#include "server/api/api_internal.h"
#include "server/api/directory_page.h"
#include "server/api/message_stream.h"
#include "service/sandbox_files.h"

struct file_transfer {
    struct http_req *req;
    struct api *api;
    struct sandbox_files_request request;
    struct sandbox_files_job *job;
    json_t *body;
    struct directory_page page;
    bool body_begun;   /* http_read_body was called */
    bool answer_begun; /* the response has begun */
    int status;
    uint64_t len, sent; /* of the content */
    struct open_stream open_stream;
    struct message_stream messages; /* file_watch.c */
    struct buf out;
};

void file_transfer_free(struct file_transfer *t);
void file_transfer_refuse(struct file_transfer *t, const struct err *err);
void file_transfer_on_client_gone(void *arg); /* for http_on_client_gone */
/* Starts t->request; `ops` gets t. */
void file_transfer_begin(struct file_transfer *t, enum files_operation operation, const struct sandbox_files_ops *ops);
void file_transfer_answer(struct file_transfer *t); /* sends t->out */
/* NULL: the request was refused. The path comes from the query. */
struct file_transfer *file_transfer_from_query(struct http_req *req, struct api *api, const char *const *query);
/* Adds the bit to t->request.files.flags if the query says so. */
int file_transfer_read_flag(struct file_transfer *t, const char *name, uint32_t bit, struct err *err);
const char *file_transfer_kind_name(char kind);
/* Reads the required path of this name; a relative one is joined to /workspace. *ret lives as long
 * as the body and the request. */
int file_transfer_read_body_path(struct http_req *req, const json_t *body, const char *name, const char **ret,
                                 struct err *err);

/* file_content.c */
void file_content_read(struct http_req *req, void *ctx);
void file_content_write(struct http_req *req, void *ctx);
void file_content_read_tar(struct http_req *req, void *ctx);
void file_content_write_tar(struct http_req *req, void *ctx);

/* file_watch.c */
void file_watch_start(struct http_req *req, void *ctx);
