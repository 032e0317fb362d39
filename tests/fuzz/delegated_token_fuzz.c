/* The text of a sandbox token, or the signature of a file's URL: as an attacker writes it, and
 * with a payload that has a valid seal, to reach the parser after the check. The first line is
 * the binding, the rest is the text.
 *
 * Checked in addition to memory errors: only sealed text is accepted, and a parsed token is
 * written as the same text again. */
#include "server/auth/delegated_token.h"

#include "core/base/str.h"
#include "core/base/text.h"

static void must(bool ok)
{
    if (!ok)
        abort();
}

static void check_again(const struct mac_key *s, const char *bound, const struct delegated_token *g)
{
    auto_buf text = { 0 };
    struct delegated_token back;

    must(!(g->scopes & SCOPE_BIT(ADMIN)) && id_valid(g->sandbox, "sb") && store_owner_valid(g->owner));
    delegated_token_write(s, DELEGATED_FILE_URL, bound, g, &text);
    must(delegated_token_read(s, DELEGATED_FILE_URL, bound, text.data, &back));
    must(memcmp(&back, g, sizeof(back)) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const uint8_t pepper[MAC_LEN] = { 7 };
    const uint8_t *line = size ? memchr(data, '\n', size) : NULL;
    auto_free char *bound = str_dup_n((const char *)data, line ? (size_t)(line - data) : 0);
    const uint8_t *rest = line ? line + 1 : data;
    size_t len = size - (size_t)(rest - data);
    auto_free char *text = str_dup_n((const char *)rest, len);
    auto_buf sealed = { 0 }, payload = { 0 };
    uint8_t mac[MAC_LEN];
    struct mac_key s;
    struct delegated_token g;

    mac_key_init(&s, pepper, "salt");
    must(!delegated_token_read(&s, DELEGATED_FILE_URL, bound, text, &g) &&
         !delegated_token_read(&s, DELEGATED_SANDBOX_TOKEN, NULL, text, &g));
    text_base64url(&payload, rest, len);
    buf_addf(&sealed, "%s\n%s", payload.data, bound);
    mac_compute(&s, "file url 1", sealed.data, sealed.len, mac);
    buf_adds(&payload, ".");
    text_base64url(&payload, mac, sizeof(mac));
    if (delegated_token_read(&s, DELEGATED_FILE_URL, bound, payload.data, &g))
        check_again(&s, bound, &g);
    return 0;
}
