/* tickets.h - credentials for one request each, for browsers, which can put nothing but a URL into some of theirs.
 *
 * A ticket lives for TICKET_NS in this process's memory and is gone when somebody shows it, whether it fits or not. It
 * is good for one method and for a path or what lies below it. What is kept is the hash, so that nobody learns a ticket
 * from how long a comparison took. */
#pragma once

#include "server/auth/delegated_token.h"

#define TICKET_NS (60 * NS_PER_S)
#define TICKET_SIZE 45 /* with the NUL */
#define TICKETS_MAX 4096u
#define TICKETS_MAX_OWNER 256u /* of one tenant */
#define TICKET_PATH_MAX 1024u

struct tickets;
struct tickets *tickets_new(void);
void tickets_free(struct tickets *t);
DEFINE_AUTO(tickets, tickets_free);

/* ERR_LIMIT: too many are waiting to be used. The method and the path are copied. */
int tickets_make(struct tickets *t, const struct delegated_token *g, const char *method, const char *path,
                 uint64_t now_ns, char ret[TICKET_SIZE], struct err *err);
void tickets_drop_all(struct tickets *t);
/* False: there is no such ticket (any more), or it was made for something else. */
bool tickets_take(struct tickets *t, const char *text, const char *method, const char *path, uint64_t now_ns,
                  struct delegated_token *ret);
