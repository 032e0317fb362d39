/* Takes the place of secret_way.c and tls_upstream.c until they exist: a rule with a secret is
 * refused when it is bound. */
#include "host/egress/secret_way.h"
#include "host/egress/tls_upstream.h"
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
int tls_authorities_new(const char *f UNUSED, struct tls_authorities **ret, struct err *err UNUSED)
{
    *ret = NULL;
    return 0;
}
void tls_authorities_free(struct tls_authorities *a UNUSED)
{
}
int tls_upstream_new(struct ev *ev UNUSED, struct tls_authorities *a UNUSED, int fd UNUSED, const char *host UNUSED,
                     tls_upstream_fn *fn UNUSED, void *arg UNUSED, struct tls_upstream **ret UNUSED, struct err *err)
{
    return err_set(err, ERR_INVALID, "this build has no TLS to destinations, which secrets need");
}
void tls_upstream_free(struct tls_upstream *u UNUSED)
{
}
void tls_upstream_want(struct tls_upstream *u UNUSED, unsigned e UNUSED)
{
}
enum tls_upstream_io tls_upstream_read(struct tls_upstream *u UNUSED, void *t UNUSED, size_t r UNUSED, size_t *n UNUSED,
                                       struct err *e UNUSED)
{
    return TLS_UPSTREAM_BAD;
}
enum tls_upstream_io tls_upstream_write(struct tls_upstream *u UNUSED, const void *t UNUSED, size_t r UNUSED,
                                        size_t *n UNUSED, struct err *e UNUSED)
{
    return TLS_UPSTREAM_BAD;
}
const struct err *tls_upstream_failure(const struct tls_upstream *u UNUSED)
{
    return NULL;
}
