/* tickets.h - credentials for one request each, for browsers, which for some requests can send only
 * a URL.
 *
 * A ticket lives for TICKET_NS in the memory of this process and is consumed by its first use,
 * whether it matches or not. It is valid for one method and for one path including everything
 * below it. Only the hash is stored, so that the duration of a comparison reveals nothing about
 * a ticket. */
#pragma once

#include "server/auth/delegated_token.h"

#define TICKET_NS (60 * NS_PER_S)
#define TICKET_SIZE 45 /* including the NUL */
#define TICKETS_MAX 4096u
#define TICKETS_MAX_OWNER 256u /* per tenant */
#define TICKET_PATH_MAX 1024u

struct tickets;
struct tickets *tickets_new(void);
void tickets_free(struct tickets *t);
DEFINE_AUTO(tickets, tickets_free);

/* Fails with ERR_LIMIT if too many tickets are unused. The method and the path are copied. */
int tickets_make(struct tickets *t, const struct delegated_token *g, const char *method, const char *path,
                 uint64_t now_ns, char ret[TICKET_SIZE], struct err *err);
void tickets_drop_all(struct tickets *t);
/* Returns false if there is no such ticket, it has expired, or it was made for another request. */
bool tickets_take(struct tickets *t, const char *text, const char *method, const char *path, uint64_t now_ns,
                  struct delegated_token *ret);
