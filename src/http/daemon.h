/* daemon.h - the callbacks that libmicrohttpd gets. Included by the files that know it, and by no other. */
#pragma once

#include "http/inside.h"

#include <microhttpd.h>

/* serve.c: the first line has come; the head, a piece of the body or its end has come; the request is over */
void *serve_line(void *cls, const char *uri, struct MHD_Connection *mhd);
enum MHD_Result serve_access(void *cls, struct MHD_Connection *mhd, const char *url, const char *method,
                             const char *version, const char *data, size_t *size, void **ctx);
void serve_completed(void *cls, struct MHD_Connection *mhd, void **ctx, enum MHD_RequestTerminationCode why);

/* conn.c */
void conn_notify(void *cls, struct MHD_Connection *mhd, void **ctx, enum MHD_ConnectionNotificationCode what);
struct conn *conn_of(struct MHD_Connection *mhd);
