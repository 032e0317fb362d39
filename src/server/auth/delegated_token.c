/* The MAC is verified before anything is parsed, so the parser sees only text that this server
 * wrote. It is strict nevertheless, because a future version may write other content. */
#include "server/auth/delegated_token.h"

#include "core/base/jsonw.h"
#include "core/base/mem.h"
#include "core/base/str.h"
#include "core/base/text.h"

#include <jansson.h>
#include <stdio.h>

#define VERSION 1

static const char *delegated_token_purpose(enum delegated_token_kind kind)
{
    return kind == DELEGATED_SANDBOX_TOKEN ? "sandbox token 1" : "file url 1";
}

char *delegated_token_url_binding(const char *method, const char *path)
{
    return str_printf("%s %s", method, path);
}

/* Input of the MAC: the encoded payload and the binding. */
static void delegated_token_mac_input(struct buf *out, const char *payload, size_t len, const char *bound)
{
    buf_add(out, payload, len);
    buf_adds(out, "\n");
    buf_adds(out, bound ? bound : "");
}

/* --- writing --- */

static void delegated_token_write_payload(const struct delegated_token *g, struct buf *out)
{
    auto_buf scopes = { 0 }, hash = { 0 };
    struct jsonw w;

    jsonw_init(&w, out, 0);
    jsonw_object(&w);
    jsonw_ku64(&w, "v", VERSION);
    jsonw_kstr(&w, "id", g->id);
    jsonw_kstr(&w, "tenant", g->owner);
    jsonw_kstr(&w, "sandbox", g->sandbox);
    scope_write_list(g->scopes, &scopes);
    jsonw_kstr(&w, "operations", scopes.data ? scopes.data : "");
    if (g->port)
        jsonw_ku64(&w, "port", g->port);
    jsonw_ku64(&w, "exp", g->expires_ms);
    if (g->delegator == DELEGATOR_KEY) {
        text_base64url(&hash, g->key_hash, sizeof(g->key_hash));
        jsonw_kstr(&w, "key", hash.data);
    } else if (g->delegator == DELEGATOR_USER) {
        jsonw_kstr(&w, "user", g->user);
        jsonw_kstr(&w, "name", g->name);
    }
    jsonw_end_object(&w);
}

void delegated_token_write(const struct mac_key *s, enum delegated_token_kind kind, const char *bound,
                           const struct delegated_token *g, struct buf *out)
{
    auto_buf json = { 0 }, payload = { 0 }, sealed = { 0 };
    uint8_t mac[MAC_LEN];

    delegated_token_write_payload(g, &json);
    text_base64url(&payload, json.data, json.len);
    delegated_token_mac_input(&sealed, payload.data, payload.len, bound);
    mac_compute(s, delegated_token_purpose(kind), sealed.data, sealed.len, mac);
    if (kind == DELEGATED_SANDBOX_TOKEN)
        buf_adds(out, DELEGATED_TOKEN_PREFIX);
    buf_add(out, payload.data, payload.len);
    buf_adds(out, ".");
    text_base64url(out, mac, sizeof(mac));
}

/* --- reading --- */

static bool delegated_token_read_text(const json_t *doc, const char *name, char *ret, size_t cap)
{
    const char *text = json_string_value(json_object_get(doc, name));

    return text && str_copy(ret, cap, text);
}

static bool delegated_token_read_delegator(const json_t *doc, struct delegated_token *ret)
{
    const json_t *key = json_object_get(doc, "key"), *user = json_object_get(doc, "user");
    uint8_t hash[STORE_HASH_LEN + 4];
    size_t n;

    ret->delegator = key ? DELEGATOR_KEY : user ? DELEGATOR_USER : DELEGATOR_LOCAL;
    if (user)
        return !key && delegated_token_read_text(doc, "user", ret->user, sizeof(ret->user)) &&
               id_valid(ret->user, "us") && delegated_token_read_text(doc, "name", ret->name, sizeof(ret->name)) &&
               ret->name[0];
    if (!key)
        return true;
    if (!json_is_string(key) || json_string_length(key) != 43 ||
        !text_from_base64url(json_string_value(key), 43, hash, &n) || n != STORE_HASH_LEN)
        return false;
    memcpy(ret->key_hash, hash, STORE_HASH_LEN);
    return true;
}

static bool delegated_token_read_payload(const json_t *doc, struct delegated_token *ret)
{
    json_int_t version = json_integer_value(json_object_get(doc, "v")),
               exp = json_integer_value(json_object_get(doc, "exp")),
               port = json_integer_value(json_object_get(doc, "port"));
    const char *scopes = json_string_value(json_object_get(doc, "operations"));

    if (version != VERSION || exp <= 0 || port < 0 || port > UINT16_MAX || !scopes)
        return false;
    ret->expires_ms = (uint64_t)exp;
    ret->port = (uint16_t)port;
    return delegated_token_read_text(doc, "id", ret->id, sizeof(ret->id)) && id_valid(ret->id, "tk") &&
           delegated_token_read_text(doc, "tenant", ret->owner, sizeof(ret->owner)) && store_owner_valid(ret->owner) &&
           delegated_token_read_text(doc, "sandbox", ret->sandbox, sizeof(ret->sandbox)) &&
           id_valid(ret->sandbox, "sb") && scope_parse_list(scopes, &ret->scopes, NULL) == 0 &&
           !(ret->scopes & SCOPE_BIT(ADMIN)) && delegated_token_read_delegator(doc, ret);
}

static bool delegated_token_parse_payload(const char *payload, size_t len, struct delegated_token *ret)
{
    uint8_t bytes[DELEGATED_TOKEN_TEXT_MAX];
    size_t n;
    bool ok = false;

    *ret = (struct delegated_token){ 0 };
    if (!text_from_base64url(payload, len, bytes, &n))
        return false;
    json_t *doc = json_loadb((const char *)bytes, n, JSON_REJECT_DUPLICATES, NULL);
    if (json_is_object(doc))
        ok = delegated_token_read_payload(doc, ret);
    json_decref(doc);
    return ok;
}

bool delegated_token_read(const struct mac_key *s, enum delegated_token_kind kind, const char *bound, const char *text,
                          struct delegated_token *ret)
{
    uint8_t mac[MAC_LEN + 4];
    auto_buf sealed = { 0 };
    size_t n;

    if (kind == DELEGATED_SANDBOX_TOKEN && !str_eat(&text, DELEGATED_TOKEN_PREFIX))
        return false;
    const char *dot = strchr(text, '.');
    if (strnlen(text, DELEGATED_TOKEN_TEXT_MAX + 1) > DELEGATED_TOKEN_TEXT_MAX || !dot || strlen(dot + 1) != 43 ||
        !text_from_base64url(dot + 1, 43, mac, &n) || n != MAC_LEN)
        return false;
    delegated_token_mac_input(&sealed, text, (size_t)(dot - text), bound);
    return mac_verify(s, delegated_token_purpose(kind), sealed.data, sealed.len, mac) &&
           delegated_token_parse_payload(text, (size_t)(dot - text), ret);
}
