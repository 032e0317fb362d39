/* The seal is checked before anything is parsed, so the parser only ever sees what we wrote ourselves; it is strict all
 * the same, because a version to come may write other things. */
#include "auth/pass.h"

#include "base/jsonw.h"
#include "base/mem.h"
#include "base/str.h"
#include "base/text.h"

#include <jansson.h>
#include <stdio.h>

#define VERSION 1

static const char *purpose_of(enum pass_kind kind)
{
    return kind == PASS_SANDBOX_TOKEN ? "sandbox token 1" : "file url 1";
}

char *pass_bound(const char *method, const char *path)
{
    return str_printf("%s %s", method, path);
}

/* What is sealed: the payload as it is written, and what it is bound to. */
static void sealed_text(struct buf *out, const char *payload, size_t len, const char *bound)
{
    buf_add(out, payload, len);
    buf_adds(out, "\n");
    buf_adds(out, bound ? bound : "");
}

/* --- writing --- */

static void payload_json(const struct pass *g, struct buf *out)
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
    if (g->by == PASS_BY_KEY) {
        text_base64url(&hash, g->key, sizeof(g->key));
        jsonw_kstr(&w, "key", hash.data);
    } else if (g->by == PASS_BY_USER) {
        jsonw_kstr(&w, "user", g->user);
        jsonw_kstr(&w, "name", g->name);
    }
    jsonw_end_object(&w);
}

void pass_write(const struct seal *s, enum pass_kind kind, const char *bound, const struct pass *g, struct buf *out)
{
    auto_buf json = { 0 }, payload = { 0 }, sealed = { 0 };
    uint8_t mac[SEAL_LEN];

    payload_json(g, &json);
    text_base64url(&payload, json.data, json.len);
    sealed_text(&sealed, payload.data, payload.len, bound);
    seal_make(s, purpose_of(kind), sealed.data, sealed.len, mac);
    if (kind == PASS_SANDBOX_TOKEN)
        buf_adds(out, PASS_TOKEN_PREFIX);
    buf_add(out, payload.data, payload.len);
    buf_adds(out, ".");
    text_base64url(out, mac, sizeof(mac));
}

/* --- reading --- */

static bool read_text(const json_t *doc, const char *name, char *ret, size_t cap)
{
    const char *text = json_string_value(json_object_get(doc, name));

    return text && str_copy(ret, cap, text);
}

static bool read_maker(const json_t *doc, struct pass *ret)
{
    const json_t *key = json_object_get(doc, "key"), *user = json_object_get(doc, "user");
    uint8_t hash[STORE_HASH_LEN + 4];
    size_t n;

    ret->by = key ? PASS_BY_KEY : user ? PASS_BY_USER : PASS_BY_LOCAL;
    if (user)
        return !key && read_text(doc, "user", ret->user, sizeof(ret->user)) && id_valid(ret->user, "us") &&
               read_text(doc, "name", ret->name, sizeof(ret->name)) && ret->name[0];
    if (!key)
        return true;
    if (!json_is_string(key) || json_string_length(key) != 43 ||
        !text_from_base64url(json_string_value(key), 43, hash, &n) || n != STORE_HASH_LEN)
        return false;
    memcpy(ret->key, hash, STORE_HASH_LEN);
    return true;
}

static bool read_payload(const json_t *doc, struct pass *ret)
{
    json_int_t version = json_integer_value(json_object_get(doc, "v")),
               exp = json_integer_value(json_object_get(doc, "exp")),
               port = json_integer_value(json_object_get(doc, "port"));
    const char *scopes = json_string_value(json_object_get(doc, "operations"));

    if (version != VERSION || exp <= 0 || port < 0 || port > UINT16_MAX || !scopes)
        return false;
    ret->expires_ms = (uint64_t)exp;
    ret->port = (uint16_t)port;
    return read_text(doc, "id", ret->id, sizeof(ret->id)) && id_valid(ret->id, "tk") &&
           read_text(doc, "tenant", ret->owner, sizeof(ret->owner)) && store_owner_valid(ret->owner) &&
           read_text(doc, "sandbox", ret->sandbox, sizeof(ret->sandbox)) && id_valid(ret->sandbox, "sb") &&
           scope_parse_list(scopes, &ret->scopes, NULL) == 0 && !(ret->scopes & SCOPE_BIT(ADMIN)) &&
           read_maker(doc, ret);
}

static bool read_sealed(const char *payload, size_t len, struct pass *ret)
{
    uint8_t bytes[PASS_TEXT_MAX];
    size_t n;
    bool ok = false;

    *ret = (struct pass){ 0 };
    if (!text_from_base64url(payload, len, bytes, &n))
        return false;
    json_t *doc = json_loadb((const char *)bytes, n, JSON_REJECT_DUPLICATES, NULL);
    if (json_is_object(doc))
        ok = read_payload(doc, ret);
    json_decref(doc);
    return ok;
}

bool pass_read(const struct seal *s, enum pass_kind kind, const char *bound, const char *text, struct pass *ret)
{
    uint8_t mac[SEAL_LEN + 4];
    auto_buf sealed = { 0 };
    size_t n;

    if (kind == PASS_SANDBOX_TOKEN && !str_eat(&text, PASS_TOKEN_PREFIX))
        return false;
    const char *dot = strchr(text, '.');
    if (strnlen(text, PASS_TEXT_MAX + 1) > PASS_TEXT_MAX || !dot || strlen(dot + 1) != 43 ||
        !text_from_base64url(dot + 1, 43, mac, &n) || n != SEAL_LEN)
        return false;
    sealed_text(&sealed, text, (size_t)(dot - text), bound);
    return seal_holds(s, purpose_of(kind), sealed.data, sealed.len, mac) &&
           read_sealed(text, (size_t)(dot - text), ret);
}
