/* mhd_callbacks.h - the callbacks for libmicrohttpd. Only files that use libmicrohttpd include
 * it. */
#pragma once

#include "server/http/http_internal.h"

#include <microhttpd.h>

/* request_lifecycle.c: after the request line; after the head, a piece of the body or its end;
 * after the request. */
void *request_on_first_line(void *cls, const char *uri, struct MHD_Connection *mhd);
enum MHD_Result request_on_access(void *cls, struct MHD_Connection *mhd, const char *url, const char *method,
                                  const char *version, const char *data, size_t *size, void **ctx);
void request_on_completed(void *cls, struct MHD_Connection *mhd, void **ctx, enum MHD_RequestTerminationCode why);

/* conn.c */
void http_conn_on_notify(void *cls, struct MHD_Connection *mhd, void **ctx, enum MHD_ConnectionNotificationCode what);
struct http_conn *http_conn_of_mhd(struct MHD_Connection *mhd);
