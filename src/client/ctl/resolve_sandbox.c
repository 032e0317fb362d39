/* Resolves the argument that names a sandbox: an ID, a name or a prefix of an ID, of a sandbox on
 * the server or of one that `cove run --keep` left on this host. Only an ID costs no additional
 * request. A name is that of a live sandbox; if there is none, and no ID begins with the word, that
 * of the latest ended one. A prefix that several sandboxes share resolves to the live one if there
 * is exactly one; otherwise the error lists the candidates. */
#include "client/ctl/ctl_internal.h"

#include "core/base/id.h"
#include "core/base/str.h"

#define SHOWN 5 /* candidates in an error message */
#define NAME_MAX_LEN 63

struct ctl_sandbox_candidate {
    char id[ID_SIZE];
    bool kept;
};

struct ctl_sandbox_candidates {
    const char *prefix;
    struct ctl_sandbox_candidate living[SHOWN], ended[SHOWN];
    size_t nliving, nended; /* may exceed SHOWN */
};

static void ctl_candidate_add(struct ctl_sandbox_candidate *list, size_t *n, const char *id, bool kept)
{
    if (*n < SHOWN) {
        list[*n].kept = kept;
        (void)str_copy(list[*n].id, sizeof(list[*n].id), id);
    }
    *n += 1;
}

static void ctl_candidate_add_kept(void *arg, const char *id, uint64_t since UNUSED)
{
    struct ctl_sandbox_candidates *k = arg;

    if (str_starts(id, k->prefix))
        ctl_candidate_add(k->living, &k->nliving, id, true);
}

static void ctl_candidate_add_item(void *arg, const json_t *s)
{
    struct ctl_sandbox_candidates *k = arg;
    const char *id = ctl_field_text(s, "id");

    if (!str_starts(id, k->prefix))
        return;
    if (str_eq(ctl_field_text(s, "state"), "ended"))
        ctl_candidate_add(k->ended, &k->nended, id, false);
    else
        ctl_candidate_add(k->living, &k->nliving, id, false);
}

char *ctl_sandbox_path(const char *path)
{
    return str_printf("%s%s", path[0] == '/' ? "" : "/workspace/", path);
}

bool ctl_is_sandbox_id_prefix(const char *word, size_t len)
{
    return len > 2 && len <= ID_LEN && word[0] == 's' && word[1] == 'b' &&
           strspn(word + 2, "abcdefghijklmnopqrstuvwxyz234567") >= len - 2;
}

bool ctl_is_sandbox_word(const char *word, size_t len)
{
    return len > 0 && len <= NAME_MAX_LEN && strspn(word, "abcdefghijklmnopqrstuvwxyz0123456789._-") >= len &&
           !strchr("._-", word[0]);
}

/* *ret stays NULL if no sandbox has the name. */
static int ctl_sandbox_find_name(struct ctl *c, const char *word, bool living, char **ret, struct err *err)
{
    json_t *answer = NULL;
    auto_free char *path = ctl_api_path(
        living ? "/v1/sandboxes?limit=1&name=%s&state=!ended" : "/v1/sandboxes?limit=1&name=%s", word);

    if (ctl_require_server(c, err) < 0 || client_json(c->client, "GET", path, NULL, &answer, err) < 0)
        return -1;
    const json_t *found = json_array_get(json_object_get(answer, "items"), 0);
    if (found)
        *ret = str_dup(ctl_field_text(found, "id"));
    json_decref(answer);
    return 0;
}

static int ctl_ambiguous_prefix(const struct ctl_sandbox_candidates *k, struct err *err)
{
    const struct ctl_sandbox_candidate *list = k->nliving ? k->living : k->ended;
    size_t n = k->nliving ? k->nliving : k->nended;
    auto_buf names = { 0 };

    for (size_t i = 0; i < n && i < SHOWN; i++)
        buf_addf(&names, "%s%s%s", i ? ", " : "", list[i].id, list[i].kept ? " (kept)" : "");
    return err_set(err, ERR_INVALID, "%zu sandboxes begin with '%s'; write more of the ID: %s%s", n, k->prefix,
                   names.data, n > SHOWN ? ", ..." : "");
}

static int ctl_choose_candidate(const struct ctl_sandbox_candidates *k, struct ctl_sandbox_name *ret, struct err *err)
{
    const struct ctl_sandbox_candidate *list = k->nliving ? k->living : k->ended;

    if (k->nliving > 1 || (k->nliving == 0 && k->nended > 1))
        return ctl_ambiguous_prefix(k, err);
    *ret = (struct ctl_sandbox_name){ str_dup(list[0].id), list[0].kept };
    return 0;
}

/* By a prefix. ret->id stays NULL if there is no candidate. */
static int ctl_sandbox_find_prefix(struct ctl *c, struct ctl_sandbox_candidates *k, struct ctl_sandbox_name *ret,
                                   struct err *err)
{
    /* Without a server the kept sandboxes are the only candidates. */
    if ((ctl_require_server(c, err) < 0 || ctl_for_each_item(c, "/v1/sandboxes", ctl_candidate_add_item, k, err) < 0) &&
        k->nliving == 0)
        return -1;
    return k->nliving + k->nended ? ctl_choose_candidate(k, ret, err) : 0;
}

int ctl_find_sandbox(struct ctl *c, const char *word, struct ctl_sandbox_name *ret, struct err *err)
{
    struct ctl_sandbox_candidates k = { .prefix = word };
    bool whole = id_valid(word, "sb"), prefix = ctl_is_sandbox_id_prefix(word, strlen(word));

    *ret = (struct ctl_sandbox_name){ 0 };
    if (!whole && !ctl_is_sandbox_word(word, strlen(word)))
        return err_set(err, ERR_MISSING, "no sandbox named '%.60s'; 'cove ls' lists the sandboxes", word);
    ctl_kept_list(c, ctl_candidate_add_kept, &k);
    if (whole && k.nliving > 0)
        return ctl_choose_candidate(&k, ret, err);
    if (whole) {
        ret->id = str_dup(word);
        return ctl_require_server(c, err) < 0 ? (free(take_ptr(&ret->id)), -1) : 0;
    }
    if (ctl_sandbox_find_name(c, word, true, &ret->id, err) < 0 && k.nliving == 0)
        return err->id == ERR_UNREACHABLE && c->client && client_is_default(c->client)
                   ? err_set(err, ERR_MISSING, "no sandbox '%.60s' is kept on this host, and no server is configured",
                             word)
                   : -1;
    if (!ret->id && prefix && ctl_sandbox_find_prefix(c, &k, ret, err) < 0)
        return -1;
    if (!ret->id && ctl_sandbox_find_name(c, word, false, &ret->id, err) < 0)
        return -1;
    if (!ret->id)
        return err_set(err, ERR_MISSING, "no sandbox %s '%s'; 'cove ls' lists the sandboxes",
                       prefix ? "has the name or begins with" : "named", word);
    return 0;
}

int ctl_resolve_sandbox(struct ctl *c, const char *word, char **ret, struct err *err)
{
    struct ctl_sandbox_name name;

    if (ctl_find_sandbox(c, word, &name, err) < 0)
        return -1;
    if (name.kept) {
        err_set(err, ERR_INVALID,
                "%s: kept on this host by 'cove run --keep'; 'cove shell', 'cove exec', 'cove cp' and 'cove rm' accept "
                "it",
                name.id);
        free(name.id);
        return -1;
    }
    *ret = name.id;
    return 0;
}
