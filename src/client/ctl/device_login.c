/* cove login --device: the server names its identity provider, and the user logs in there
 * with a browser. */
#include "client/ctl/ctl_internal.h"

#include "core/base/str.h"
#include "client/cli/report.h"
#include "client/oauth.h"

#include <stdio.h>

/* A server can name any provider, also one that other servers trust, and request a token that is
 * valid there. Only the user can judge whether the provider is the right one, so the purpose and
 * the recipient of the token are printed. */
static void ctl_device_show_code(const struct oauth_device *d, const char *audience, const char *url)
{
    auto_free char *what_for = str_dup(audience);

    str_strip_control_chars(what_for);
    fprintf(stderr, "Open this page in a browser, on any machine, and log in:\n\n  %s\n\nThe code is\n\n  %s\n\n",
            d->page_with_code ? d->page_with_code : d->page, d->user_code);
    fprintf(stderr, "You get a token for '%s', which is sent to %s and nowhere else.\n", what_for, url);
    fprintf(stderr, "Waiting. Before you confirm, check that the page shows this code.\n");
}

static int ctl_device_run_flow(struct ctl *c, const char *issuer, const char *client_id, const char *audience,
                               struct login *l, struct err *err)
{
    struct oauth_provider place = { 0 };
    struct oauth_device device = { 0 };
    int rc = oauth_discover(c->ev, issuer, &place, err);

    if (rc == 0)
        rc = oauth_device_begin(c->ev, &place, client_id, audience, &device, err);
    if (rc == 0) {
        ctl_device_show_code(&device, audience, l->url);
        rc = oauth_device_wait(c->ev, &place, client_id, &device, l, err);
    }
    if (rc == 0) {
        l->issuer = str_dup(place.issuer);
        l->client_id = str_dup(client_id);
        l->token_url = str_dup(place.token_url);
    }
    oauth_device_done(&device);
    oauth_provider_done(&place);
    return rc;
}

int ctl_device_login(struct ctl *c, struct login *l, struct err *err)
{
    struct client_settings set = { .url = l->url, .key = "", .cacert = l->cacert };
    AUTO_JSON *door = NULL;

    if (client_new(c->ev, &set, &c->client, err) < 0 ||
        client_json(c->client, "GET", "/v1/login", NULL, &door, err) < 0)
        return -1;
    client_free(c->client);
    c->client = NULL;
    if (!*ctl_field_text(door, "clientId"))
        return err_set(
            err, ERR_NOT_SUPPORTED_YET,
            "the server at %.120s has no identity provider for device login (auth.jwt.clientId); log in with a key",
            l->url);
    return ctl_device_run_flow(c, ctl_field_text(door, "issuer"), ctl_field_text(door, "clientId"),
                               ctl_field_text(door, "audience"), l, err);
}
