/* cove mcp: the bridge for MCP clients that start a program, the sessions of a server, and the
 * configuration of clients. The bridge writes nothing but messages of the protocol on standard
 * output, so even an error of its start is reported on standard error alone. */
#include "client/ctl/ctl_internal.h"
#include "client/ctl/mcp_client.h"

#include "core/base/clock.h"
#include "core/base/mem.h"
#include "core/base/str.h"
#include "client/cli/report.h"
#include "client/mcp/bridge.h"
#include "client/mcp/local_server.h"

#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

#define READY_TRIES 1000
#define READY_STEP_MS 10
#define NETWORK_TEMPLATE "mcp-network" /* of a private server */

static const char *ctl_mcp_flag(const struct ctl *c, int opt)
{
    const struct arg *a = args_find(&c->args, opt);

    return a ? a->value : NULL;
}

/* The directory of this program; with a slash at its end. */
static void ctl_mcp_own_dir(char dir[PATH_MAX])
{
    ssize_t n = readlink("/proc/self/exe", dir, PATH_MAX - 1);

    dir[n < 0 ? 0 : n] = '\0';
    char *slash = strrchr(dir, '/');
    if (slash)
        slash[1] = '\0';
}

/* --- the bridge --- */

/* The URL of the endpoint is accepted as well as that of the server. */
static char *ctl_mcp_server_url(const struct ctl *c)
{
    const char *url = ctl_mcp_flag(c, OPT_URL);

    if (!url)
        url = getenv("COVE_URL");
    if (!url || !*url)
        return NULL;
    return str_dup_n(url, strlen(url) - (str_ends(url, "/mcp") ? 4 : 0));
}

static int ctl_mcp_connect(struct ctl *c, const struct local_server *local, struct err *err)
{
    auto_free char *url = local ? NULL : ctl_mcp_server_url(c);
    struct client_settings set = { .url = url, .cacert = ctl_mcp_flag(c, OPT_CACERT) };

    if (local) {
        set.socket = local_server_socket(local);
        set.key = ""; /* a key of another server means nothing to this one, which recognizes its user */
    }
    return client_new(c->ev, &set, &c->client, err);
}

/* A server answers before it has read its store, and then refuses calls for a moment. */
static int ctl_mcp_wait_ready(struct ctl *c, struct err *err)
{
    for (int tries = 0; tries < READY_TRIES; tries++) {
        if (client_json(c->client, "GET", "/ready", NULL, NULL, err) == 0)
            return 0;
        (void)poll(NULL, 0, READY_STEP_MS);
    }
    return -1;
}

static void ctl_mcp_on_signal(void *arg, int signo UNUSED)
{
    bridge_stop(arg);
}

static bool ctl_mcp_has_network(const struct ctl *c)
{
    return args_find(&c->args, OPT_ALLOW) || args_find(&c->args, OPT_DENY);
}

/* Gives the private server a template with the hosts of --allow: the sandboxes of a session have
 * the network of their template. */
static int ctl_mcp_put_template(struct ctl *c, struct err *err)
{
    const char *name = ctl_mcp_flag(c, OPT_TEMPLATE);
    auto_free char *base = ctl_api_path("/v1/templates/%s", name ? name : "python");
    AUTO_JSON *template = NULL, *answer = NULL;

    if (client_json(c->client, "GET", base, NULL, &template, err) < 0)
        return -1;
    json_t *spec = json_object_get(template, "spec");
    if (ctl_set_network(c, spec, err) < 0)
        return -1;
    auto_free char *text = json_dumps(spec, JSON_COMPACT);
    return client_json(c->client, "PUT", "/v1/templates/" NETWORK_TEMPLATE, text, &answer, err);
}

static int ctl_mcp_run(struct ctl *c, struct err *err)
{
    auto_free char *sandbox = NULL;
    const char *word = ctl_mcp_flag(c, OPT_IN_SANDBOX);

    if (word && ctl_resolve_sandbox(c, word, &sandbox, err) < 0)
        return -1;
    const struct bridge_settings set = { .ev = c->ev,
                                         .client = c->client,
                                         .in = STDIN_FILENO,
                                         .out = STDOUT_FILENO,
                                         .sandbox = sandbox,
                                         .template = ctl_mcp_has_network(c) ? NETWORK_TEMPLATE
                                                                            : ctl_mcp_flag(c, OPT_TEMPLATE) };
    auto_(bridge) b = bridge_new(&set);
    sigset_t signals;

    sigemptyset(&signals);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGINT);
    sigaddset(&signals, SIGHUP);
    if (ev_signals(c->ev, &signals, ctl_mcp_on_signal, b, err) < 0)
        return -1;
    bridge_run(b);
    return 0;
}

static int ctl_mcp_bridge(struct ctl *c, struct err *err)
{
    auto_(local_server) local = NULL;
    char program[PATH_MAX];

    if (args_find(&c->args, OPT_LOCAL) && (args_find(&c->args, OPT_URL) || args_find(&c->args, OPT_IN_SANDBOX)))
        return err_set(err, ERR_USAGE, "--local starts a server of its own; omit --url and --sandbox");
    if (args_find(&c->args, OPT_IN_SANDBOX) && args_find(&c->args, OPT_TEMPLATE))
        return err_set(err, ERR_USAGE, "--sandbox names a sandbox that exists; omit --template");
    if (ctl_mcp_has_network(c) && !args_find(&c->args, OPT_LOCAL))
        return err_set(err, ERR_USAGE,
                       "--allow and --deny need --local; on a server write 'cove template set --allow HOST NAME', then "
                       "'cove mcp --template NAME'");
    if (isatty(STDIN_FILENO) && !c->quiet)
        report_note("waiting for MCP messages, one JSON object per line; 'cove mcp config CLIENT' prints how to "
                    "start this from an MCP client");
    if (args_find(&c->args, OPT_LOCAL)) {
        ctl_mcp_own_dir(program);
        auto_free char *path = str_printf("%scove-serve", program);
        if (local_server_start(path, &local, err) < 0)
            return -1;
    }
    if (ctl_mcp_connect(c, local, err) < 0 || (local && ctl_mcp_wait_ready(c, err) < 0) ||
        (ctl_mcp_has_network(c) && ctl_mcp_put_template(c, err) < 0))
        return -1;
    return ctl_mcp_run(c, err);
}

/* --- sessions of a server --- */

static void ctl_mcp_add_session(void *arg, const json_t *item)
{
    struct ctl_table *t = arg;
    uint64_t now = clock_real_ns() / NS_PER_MS;
    char created[CTL_AGE], used[CTL_AGE];
    const char *sandbox = ctl_field_text(item, "sandboxId"), *client = ctl_field_text(item, "clientName");

    ctl_table_row(t, ctl_field_text(item, "id"), *sandbox ? sandbox : "-", *client ? client : "-",
                  ctl_age(ctl_field_text(item, "createdAt"), now, created),
                  ctl_age(ctl_field_text(item, "usedAt"), now, used));
}

static int ctl_mcp_sessions_ls(struct ctl *c, struct err *err)
{
    AUTO_JSON *answer = NULL;
    struct ctl_table t = { 0 };
    size_t i;
    json_t *item;

    if (client_json(c->client, "GET", "/v1/mcp/sessions", NULL, &answer, err) < 0)
        return -1;
    if (c->json)
        return ctl_print_json(answer);
    ctl_table_row(&t, "session", "sandbox", "client", "created", "used");
    json_array_foreach(json_object_get(answer, "items"), i, item) ctl_mcp_add_session(&t, item);
    return ctl_table_print(&t);
}

static int ctl_mcp_sessions(struct ctl *c, struct err *err)
{
    AUTO_JSON *answer = NULL;
    const char *what = c->args.nrest > 0 ? c->args.rest[0] : "";
    bool shows = str_eq(what, "show");

    if (str_eq(what, "ls") && c->args.nrest == 1)
        return ctl_mcp_sessions_ls(c, err);
    if ((!shows && !str_eq(what, "rm")) || c->args.nrest != 2)
        return err_set(err, ERR_USAGE,
                       "usage: cove mcp sessions ls, cove mcp sessions show ID, or cove mcp sessions rm ID");
    auto_free char *path = ctl_api_path("/v1/mcp/sessions/%s", c->args.rest[1]);
    if (client_json(c->client, shows ? "GET" : "DELETE", path, NULL, &answer, err) < 0)
        return -1;
    if (shows)
        return ctl_print_json(answer);
    if (!c->quiet)
        ctl_printf("%s", c->args.rest[1]);
    return 0;
}

/* --- configuration of clients --- */

static const struct {
    const char *name;
    const char *servers; /* key of the object of servers */
    const char *file;
} ctl_mcp_clients[] = {
    { "claude-code", "mcpServers", ".mcp.json" },
    { "cursor", "mcpServers", ".cursor/mcp.json" },
    { "vscode", "servers", ".vscode/mcp.json" },
};

/* A program in a build tree is named with its directory; an installed one is in PATH. */
char *ctl_mcp_command(void)
{
    char dir[PATH_MAX];

    ctl_mcp_own_dir(dir);
    char *command = str_printf("%scove", dir);
    if (access(command, X_OK) == 0)
        return command;
    free(command);
    return str_dup("cove");
}

static json_t *ctl_mcp_arguments(const struct ctl *c)
{
    static const struct {
        int opt;
        const char *flag;
    } passed[] = { { OPT_LOCAL, "--local" },
                   { OPT_IN_SANDBOX, "--sandbox" },
                   { OPT_TEMPLATE, "--template" },
                   { OPT_URL, "--url" },
                   { OPT_CACERT, "--cacert" } };
    json_t *all = json_array();

    json_array_append_new(all, json_string("mcp"));
    for (size_t i = 0; i < ARRAY_LEN(passed); i++) {
        const struct arg *a = args_find(&c->args, passed[i].opt);

        if (a)
            json_array_append_new(all, json_string(passed[i].flag));
        if (a && a->value)
            json_array_append_new(all, json_string(a->value));
    }
    for (size_t i = 0; i < c->args.n; i++) { /* their order counts */
        const struct arg *a = &c->args.items[i];

        if (a->opt->id != OPT_ALLOW && a->opt->id != OPT_DENY)
            continue;
        json_array_append_new(all, json_string(a->opt->id == OPT_ALLOW ? "--allow" : "--deny"));
        json_array_append_new(all, json_string(a->value));
    }
    return all;
}

static int ctl_mcp_config(struct ctl *c, struct err *err)
{
    const char *name = c->args.nrest == 1 ? c->args.rest[0] : "";
    size_t i = 0;

    while (i < ARRAY_LEN(ctl_mcp_clients) && !str_eq(ctl_mcp_clients[i].name, name))
        i++;
    if (i == ARRAY_LEN(ctl_mcp_clients))
        return err_set(err, ERR_USAGE, "'%.40s': must be claude-code, cursor or vscode, as in 'cove mcp config cursor'",
                       name);
    auto_free char *command = ctl_mcp_command();
    AUTO_JSON *root = json_pack("{s{s{ssssso}}}", ctl_mcp_clients[i].servers, "cove", "type", "stdio", "command",
                                command, "args", ctl_mcp_arguments(c));
    auto_free char *text = json_dumps(root, JSON_INDENT(2));
    if (puts(text) < 0 || fflush(stdout) != 0)
        return err_sys(err, ERR_SYS, "standard output");
    if (!c->quiet)
        report_note("for the file %s of a project%s", ctl_mcp_clients[i].file,
                    args_find(&c->args, OPT_LOCAL) ? "" : "; the key comes from 'cove login' or COVE_API_KEY");
    return 0;
}

/* --- the verb --- */

int ctl_mcp(struct ctl *c, const char *what, struct err *err)
{
    struct err why = { 0 };

    if (what && !str_eq(what, "config") && !str_eq(what, "sessions"))
        return ctl_mcp_client(c, what, err);
    if (what && ctl_mcp_check_flags(c, false, err) < 0)
        return -1;
    if (what && str_eq(what, "config"))
        return ctl_mcp_config(c, err);
    if (what)
        return ctl_mcp_connect(c, NULL, err) < 0 ? -1 : ctl_mcp_sessions(c, err);
    if (ctl_require_args(c, 0, 0, "mcp [FLAGS]", &why) == 0 && ctl_mcp_check_flags(c, false, &why) == 0 &&
        ctl_mcp_bridge(c, &why) == 0)
        return 0;
    return report_error(&why, false);
}
