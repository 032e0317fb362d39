/* oauth.h - logs in at an identity provider without a local browser (RFC 8628, the device flow).
 *
 * The provider issues a device code and a user code. The user enters the user code in a browser on
 * any machine and logs in there, while we poll for the token. No password and no redirect reaches
 * this program, so it cannot be phished or replayed. An intercepted device code is useless, because
 * the token is issued only with the PKCE verifier whose hash was sent with the first request. */
#pragma once

#include "client/login.h"
#include "core/ev/ev.h"

struct oauth_provider { /* metadata of the provider */
    char *issuer, *device_url, *token_url;
};
/* Fetches the endpoints of the issuer. ERR_PROTOCOL: the issuer has another name in its metadata,
 * so it may be another provider; or an endpoint is not https. */
int oauth_discover(struct ev *ev, const char *issuer, struct oauth_provider *ret, struct err *err);
void oauth_provider_done(struct oauth_provider *p);

struct oauth_device {
    char *device_code, *user_code, *page, *page_with_code; /* page_with_code may be NULL */
    uint64_t interval_ms, expires_ms;                      /* both relative to the answer */
    char verifier[64];
};
int oauth_device_begin(struct ev *ev, const struct oauth_provider *p, const char *client_id, const char *audience,
                       struct oauth_device *ret, struct err *err);
void oauth_device_done(struct oauth_device *d);

/* Waits until the user has logged in or refused, or the code has expired. Fills the token
 * fields of *ret. */
int oauth_device_wait(struct ev *ev, const struct oauth_provider *p, const char *client_id,
                      const struct oauth_device *d, struct login *ret, struct err *err);

/* Renews a token that is about to expire and updates its fields. A key is left unchanged.
 * ERR_UNAUTHORIZED: the provider refuses to renew it; log in again. */
int oauth_renew(struct ev *ev, struct login *l, struct err *err);
