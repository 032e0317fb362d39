/* Resolves the argument that names a sandbox: an ID or a prefix of an ID, of a sandbox on the
 * server or of one that `cove run --keep` left on this host. Only a prefix costs an additional
 * request. A prefix that several sandboxes share resolves to the live one if there is exactly one;
 * otherwise the error lists the candidates. */
#include "client/ctl/ctl_internal.h"

#include "core/base/id.h"
#include "core/base/str.h"

#define SHOWN 5 /* candidates in an error message */

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

    if (k->nliving + k->nended == 0)
        return err_set(err, ERR_MISSING, "no sandbox begins with '%s'; 'cove ls' lists the sandboxes", k->prefix);
    if (k->nliving > 1 || (k->nliving == 0 && k->nended > 1))
        return ctl_ambiguous_prefix(k, err);
    *ret = (struct ctl_sandbox_name){ str_dup(list[0].id), list[0].kept };
    return 0;
}

int ctl_find_sandbox(struct ctl *c, const char *word, struct ctl_sandbox_name *ret, struct err *err)
{
    struct ctl_sandbox_candidates k = { .prefix = word };
    bool whole = id_valid(word, "sb");

    if (!whole && !ctl_is_sandbox_id_prefix(word, strlen(word)))
        return err_set(err, ERR_MISSING, "no sandbox named '%.60s'; 'cove ls' lists the sandboxes", word);
    ctl_kept_list(c, ctl_candidate_add_kept, &k);
    if (whole && k.nliving == 0) {
        *ret = (struct ctl_sandbox_name){ str_dup(word), false };
        return ctl_require_server(c, err) < 0 ? (free(take_ptr(&ret->id)), -1) : 0;
    }
    /* Without a server the kept sandboxes are the only candidates. */
    if (!whole &&
        (ctl_require_server(c, err) < 0 ||
         ctl_for_each_item(c, "/v1/sandboxes", ctl_candidate_add_item, &k, err) < 0) &&
        k.nliving == 0)
        return -1;
    return ctl_choose_candidate(&k, ret, err);
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
