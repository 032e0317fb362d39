#include "policy/network_json.h"

#include "core/base/str.h"
#include "policy/egress_request_match.h"
#include "policy/egress_rules.h"

static void network_json_request(struct jsonw *w, const struct egress_request_match *m)
{
    if (m->methods) {
        jsonw_karray(w, "methods");
        for (unsigned i = 0; egress_methods[i]; i++)
            if (m->methods >> i & 1)
                jsonw_str(w, egress_methods[i]);
        jsonw_end_array(w);
    }
    if (m->path[0]) {
        auto_buf path = { 0 };

        egress_request_match_write_path(m, &path);
        jsonw_kstr(w, "path", path.data);
    }
}

static void network_json_secret(struct jsonw *w, const struct egress_secret_rule *s)
{
    auto_free char *host = s->port == 443 ? str_dup(s->host) : str_printf("%s:%u", s->host, s->port);

    jsonw_object(w);
    jsonw_kstr(w, "name", s->name);
    jsonw_kstr(w, "host", host);
    jsonw_kstr(w, "header", s->header);
    jsonw_kstr(w, "format", s->format);
    network_json_request(w, &s->request);
    jsonw_end_object(w);
}

static void network_json_secrets(struct jsonw *w, const char *text)
{
    auto_(egress_rules) r = NULL;

    if (egress_rules_parse(text, strlen(text), &r, NULL) < 0 || r->nsecrets == 0)
        return;
    jsonw_karray(w, "secrets");
    for (size_t i = 0; i < r->nsecrets; i++)
        network_json_secret(w, &r->secrets[i]);
    jsonw_end_array(w);
}

void network_json_write(struct jsonw *w, const struct network_policy *n)
{
    const char *text = n->rules ? n->rules : "";

    if (n->mode == NETWORK_NONE) {
        jsonw_str(w, network_mode_name(n->mode));
        return;
    }
    jsonw_object(w);
    jsonw_kstr(w, "mode", network_mode_name(n->mode));
    jsonw_karray(w, "egress");
    for (const char *line = text; *line;) {
        size_t len = strcspn(line, "\n");

        if (strncmp(line, "secret ", 7) != 0)
            jsonw_strn(w, line, len);
        line += len + (line[len] == '\n');
    }
    jsonw_end_array(w);
    network_json_secrets(w, text);
    jsonw_end_object(w);
}
