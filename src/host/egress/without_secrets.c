/* Takes the place of secret_way.c until it exists: a rule with a secret is
 * refused when it is bound. */
#include "host/egress/secret_way.h"
int secret_way_new(const struct egress_secret_rule *rule UNUSED, const char *value UNUSED,
                   struct secret_way **ret UNUSED, struct err *err)
{
    return err_set(err, ERR_INVALID, "this build has no TLS to destinations, which secrets need");
}
void secret_way_free(struct secret_way *w UNUSED)
{
}
const struct egress_secret_rule *secret_way_rule(const struct secret_way *w UNUSED)
{
    return NULL;
}
int secret_way_write_request(const struct secret_way *w UNUSED, const struct http1_request *r UNUSED, bool close UNUSED,
                             struct buf *out UNUSED, struct err *err)
{
    return err_set(err, ERR_INVALID, "this build has no TLS to destinations, which secrets need");
}
void secret_way_wipe(struct buf *b)
{
    buf_done(b);
}
int secret_way_write_response(const struct secret_way *w UNUSED, const struct http1_request *q UNUSED,
                              const struct http1_response *r UNUSED, bool close UNUSED, struct buf *out UNUSED,
                              struct err *err)
{
    return err_set(err, ERR_INVALID, "this build has no TLS to destinations, which secrets need");
}
void secret_body_init(struct secret_body *b UNUSED, const struct secret_way *w UNUSED,
                      const struct http1_response *r UNUSED)
{
}
void secret_body_done(struct secret_body *b UNUSED)
{
}
enum http1_result secret_body_feed(struct secret_body *b UNUSED, const char *d UNUSED, size_t n UNUSED,
                                   size_t *rn UNUSED, struct buf *o UNUSED, struct err *e UNUSED)
{
    return HTTP1_BAD;
}
int secret_body_close(struct secret_body *b UNUSED, struct buf *o UNUSED, struct err *e UNUSED)
{
    return -1;
}
