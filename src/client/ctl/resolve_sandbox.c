/* Resolves the argument that names a sandbox: an ID or a prefix of an ID. Only a prefix costs an
 * additional request. A prefix that several sandboxes share resolves to the live one if there is
 * exactly one; otherwise it is an error. */
#include "client/ctl/ctl_internal.h"

#include "core/base/id.h"
#include "core/base/str.h"

struct ctl_sandbox_candidates {
    const char *beginning;
    char found[ID_SIZE]; /* the last match; live sandboxes take precedence */
    size_t living, ended;
};

static void ctl_sandbox_candidate_add(void *arg, const json_t *s)
{
    struct ctl_sandbox_candidates *k = arg;
    bool ended = str_eq(ctl_field_text(s, "state"), "ended");

    if (!str_starts(ctl_field_text(s, "id"), k->beginning))
        return;
    if (!ended || k->living == 0)
        (void)str_copy(k->found, sizeof(k->found), ctl_field_text(s, "id"));
    *(ended ? &k->ended : &k->living) += 1;
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

int ctl_resolve_sandbox(struct ctl *c, const char *word, char **ret, struct err *err)
{
    struct ctl_sandbox_candidates k = { .beginning = word };

    if (id_valid(word, "sb")) {
        *ret = str_dup(word);
        return 0;
    }
    if (!ctl_is_sandbox_id_prefix(word, strlen(word)))
        return err_set(err, ERR_MISSING, "no sandbox named '%.60s'; 'cove sandbox ls' lists the sandboxes", word);
    if (ctl_for_each_item(c, "/v1/sandboxes", "sandboxes", ctl_sandbox_candidate_add, &k, err) < 0)
        return -1;
    if (k.living + k.ended == 0)
        return err_set(err, ERR_MISSING, "no sandbox begins with '%s'; 'cove sandbox ls' lists the sandboxes", word);
    if (k.living > 1 || (k.living == 0 && k.ended > 1))
        return err_set(err, ERR_INVALID, "%zu sandboxes begin with '%s'; write more of the ID",
                       k.living ? k.living : k.ended, word);
    *ret = str_dup(k.found);
    return 0;
}
