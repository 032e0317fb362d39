/* The text of a sandbox token, or the signature of a file's URL: as a stranger writes it, and with a payload that the
 * seal holds for, to reach the reader behind it. The first line is what it is bound to, the rest is the text.
 *
 * Held besides memory: nothing is accepted that was not sealed, and what is read back writes down as the same again. */
#include "auth/pass.h"

#include "base/str.h"
#include "base/text.h"

static void must(bool ok)
{
    if (!ok)
        abort();
}

static void check_again(const struct seal *s, const char *bound, const struct pass *g)
{
    auto_buf text = { 0 };
    struct pass back;

    must(!(g->scopes & SCOPE_BIT(ADMIN)) && id_valid(g->sandbox, "sb") && store_owner_valid(g->owner));
    pass_write(s, PASS_FILE_URL, bound, g, &text);
    must(pass_read(s, PASS_FILE_URL, bound, text.data, &back));
    must(memcmp(&back, g, sizeof(back)) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const uint8_t pepper[SEAL_LEN] = { 7 };
    const uint8_t *line = size ? memchr(data, '\n', size) : NULL;
    auto_free char *bound = str_dup_n((const char *)data, line ? (size_t)(line - data) : 0);
    const uint8_t *rest = line ? line + 1 : data;
    size_t len = size - (size_t)(rest - data);
    auto_free char *text = str_dup_n((const char *)rest, len);
    auto_buf sealed = { 0 }, payload = { 0 };
    uint8_t mac[SEAL_LEN];
    struct seal s;
    struct pass g;

    seal_init(&s, pepper, "salt");
    must(!pass_read(&s, PASS_FILE_URL, bound, text, &g) && !pass_read(&s, PASS_SANDBOX_TOKEN, NULL, text, &g));
    text_base64url(&payload, rest, len);
    buf_addf(&sealed, "%s\n%s", payload.data, bound);
    seal_make(&s, "file url 1", sealed.data, sealed.len, mac);
    buf_adds(&payload, ".");
    text_base64url(&payload, mac, sizeof(mac));
    if (pass_read(&s, PASS_FILE_URL, bound, payload.data, &g))
        check_again(&s, bound, &g);
    return 0;
}
