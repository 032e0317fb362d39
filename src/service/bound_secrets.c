#include "service/bound_secrets.h"

#include "core/base/log.h"
#include "core/base/str.h"

static bool bound_secrets_has(const struct bound_secrets *b, const char *name)
{
    for (size_t i = 0; i < b->n; i++)
        if (str_eq(b->entries[i].name, name))
            return true;
    return false;
}

static int bound_secrets_add(struct secrets *secrets, const char *tenant, const struct egress_secret_rule *rule,
                             struct bound_secrets *b, struct err *err)
{
    char *value = NULL;

    if (bound_secrets_has(b, rule->name))
        return 0;
    if (!secrets)
        return err_set(err, ERR_SECRET_MISSING, "network.secrets: this server keeps no secrets");
    if (secrets_reveal(secrets, tenant, rule->name, rule->host, &value, err) < 0)
        return err_wrap(err, "network.secrets");
    b->entries[b->n++] = (struct sandbox_secret){ rule->name, value };
    return 0;
}

int bound_secrets_fill(struct secrets *secrets, const char *tenant, const struct network_policy *network,
                       bool missing_ok, struct bound_secrets *ret, struct err *err)
{
    struct err why = { 0 };

    *ret = (struct bound_secrets){ 0 };
    if (network->mode == NETWORK_NONE || !network->rules || !strstr(network->rules, "secret "))
        return 0;
    if (egress_rules_parse(network->rules, strlen(network->rules), &ret->rules, err) < 0)
        return -1;
    for (size_t i = 0; i < ret->rules->nsecrets; i++) {
        if (bound_secrets_add(secrets, tenant, &ret->rules->secrets[i], ret, &why) == 0)
            continue;
        if (!missing_ok) {
            *err = why;
            return -1;
        }
        log_warn("a sandbox of tenant %s goes on without a secret: %s", tenant, why.msg);
    }
    return 0;
}

void bound_secrets_wipe(struct bound_secrets *b)
{
    while (b->n > 0)
        secrets_wipe((char *)(uintptr_t)b->entries[--b->n].value);
    egress_rules_free(b->rules);
    b->rules = NULL;
}
