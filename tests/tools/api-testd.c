/* api-testd jailer DIR RUNTIME | serve DIR - the two halves of a server, as small as possible, for
 * the tests of src/server/api. `serve` prints its port and, for a new DIR, its first key; each half
 * can be killed while the other keeps running. */
#include "tests/support/http_limits.h"
#include "server/mcp/mcp.h"
#include "server/api/api.h"
#include "server/auth/mac.h"
#include "service/template_cache.h"
#include "server/gateway/open_streams.h"
#include "core/base/clock.h"
#include "core/base/log.h"
#include "core/base/str.h"
#include "host/jailer/jailer.h"
#include "core/wire/unix_listener.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char door[256], db[256], output[256], sock[256], pepper_file[256];

struct served {
    struct ev *ev;
    struct gateway *gateway;
    struct http_server *http;
};

static int die(const char *what, const struct err *err)
{
    fprintf(stderr, "%s: %s\n", what, err->msg);
    return 1;
}

static int jailer(const char *dir, const char *runtime)
{
    struct jailer_settings s = { .runtime_fd = open(runtime, O_RDONLY | O_CLOEXEC), .state_dir = dir, .socket = door };
    char kernels[4096]; /* next to the runtime, where cove looks for them */
    const char *slash = strrchr(runtime, '/');

    snprintf(kernels, sizeof(kernels), "%.*s/kernels", slash ? (int)(slash - runtime) : 1, slash ? runtime : ".");
    s.kernels_fd = open(kernels, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return s.runtime_fd < 0 ? 1 : jailer_service(&s);
}

static int knock(void *arg UNUSED, int *ret_jailer, int *ret_monitor, struct err *err)
{
    *ret_monitor = -1;
    return unix_connect(door, ret_jailer, NULL, err);
}

static void on_first_key(void *arg UNUSED, const struct err *err, const struct store_key *row UNUSED,
                         const char *secret)
{
    printf("key %s\n", err ? "-" : secret);
    fflush(stdout);
}

static void on_drained(void *arg)
{
    ev_stop(((struct served *)arg)->ev);
}

static void on_signal(void *arg, int signo UNUSED)
{
    struct served *s = arg;

    open_streams_end_endless(s->gateway);
    http_server_drain(s->http, 1000, on_drained, s);
}

static void on_revoked(void *arg, const char *key_id)
{
    open_streams_end_revoked(((struct served *)arg)->gateway, key_id);
}

static void keep_nothing(void *arg UNUSED, struct store_retention *ret)
{
    uint64_t now = clock_real_ns() / NS_PER_MS + 1;

    *ret = (struct store_retention){ .executions_before_ms = now,
                                     .sandboxes_before_ms = now,
                                     .events_before_ms = now,
                                     .idem_before_ms = now,
                                     .scripts_before_ms = now };
}

static int serve(void)
{
    struct store_settings store_set = { .url.file = db };
    struct served s = { 0 };
    struct auth_settings auth_set = { .rate = { "none", "none", "none" }, .on_revoked = on_revoked, .arg = &s };
    uint8_t pepper[MAC_LEN];
    struct store *store;
    struct auth *auth;
    struct manager *manager;
    struct err err = { 0 };
    sigset_t signals;
    uint16_t port;

    sigemptyset(&signals);
    sigaddset(&signals, SIGTERM);
    signal(SIGPIPE, SIG_IGN);
    if (ev_new(&s.ev, &err) < 0 || store_open(s.ev, &store_set, &store, &err) < 0)
        return die("store", &err);
    struct pools *pools = pools_new(s.ev);
    auto_free char *key_file = str_printf("%s.secrets", pepper_file);
    struct secrets *secrets = secrets_new(
        &(struct secrets_settings){ .ev = s.ev, .store = store, .key_file = key_file, .per_tenant = 5 });
    struct manager_settings manager_set = { .store = store,
                                            .output_dir = output,
                                            .connect = knock,
                                            .pools = pools,
                                            .secrets = secrets,
                                            .live_max = 50,
                                            .executions_max = 64,
                                            .creating_max = 16,
                                            .starting_max = 64 };
    if (mac_load_pepper(pepper_file, pepper, &err) < 0)
        return die("token.key", &err);
    auth_set.pepper = pepper;
    if (auth_new(s.ev, store, &auth_set, &auth, &err) < 0 || manager_new(s.ev, &manager_set, &manager, &err) < 0)
        return die("manager", &err);
    struct executor *executor = executor_new(&(struct executor_settings){ .ev = s.ev,
                                                                          .ephemerals = manager_ephemerals(manager),
                                                                          .running_max = 4,
                                                                          .waiting_max = 8,
                                                                          .wait_ms = 600000,
                                                                          .output_bytes = 32 * MIB,
                                                                          .cache_bytes = 8 * MIB,
                                                                          .cache_age_ms = 3600000 });
    struct template_cache *template_cache = template_cache_new(store);
    struct script_cache *script_cache = script_cache_new(
        store, &(struct store_script_quota){ .count = 3, .bytes = 256 * KIB });
    struct tools *tools = tools_new(&(struct tools_settings){ .ev = s.ev,
                                                              .manager = manager,
                                                              .store = store,
                                                              .script_cache = script_cache,
                                                              .template_cache = template_cache,
                                                              .executor = executor,
                                                              .output_bytes = 8 * KIB,
                                                              .timeout_ms = 30000 });
    s.gateway = gateway_new(
        &(struct gateway_settings){ .ev = s.ev, .store = store, .auth = auth, .hooks = api_service_hooks(manager) });
    struct api_settings api_set = { .ev = s.ev,
                                    .gateway = s.gateway,
                                    .store = store,
                                    .manager = manager,
                                    .pools = pools,
                                    .executor = executor,
                                    .tools = tools,
                                    .script_cache = script_cache,
                                    .secrets = secrets,
                                    .auth = auth,
                                    .version = "0.0-test",
                                    .scratch_dir = output,
                                    .get_retention = keep_nothing };
    struct api *api = api_new(&api_set);
    struct mcp *mcp = mcp_new(&(struct mcp_settings){ .ev = s.ev,
                                                      .gateway = s.gateway,
                                                      .auth = auth,
                                                      .store = store,
                                                      .manager = manager,
                                                      .tools = tools,
                                                      .version = "0.0-test",
                                                      .template = "",
                                                      .sessions_max = 100,
                                                      .idle_ms = 600000 });
    struct http_settings http_set = {
        .tables = (const struct http_tables[]){ { api_tables, api }, { mcp_tables, mcp }, { 0 } },
        .ctx = s.gateway,
        .on_request = gateway_on_request,
        .on_done = gateway_on_done
    };
    http_set.limits = http_limits_for_tests();
    http_set.limits.conns_per_addr = 200;
    http_set.limits.write_ms = 600000; /* tests have readers that wait for something long */
    if (http_server_new(s.ev, &http_set, &s.http, &err) < 0 ||
        http_listen_tcp(s.http, "127.0.0.1:0", &port, &err) < 0 || http_listen_unix(s.http, sock, 0600, &err) < 0 ||
        ev_signals(s.ev, &signals, on_signal, &s, &err) < 0)
        return die("http", &err);
    api_set_server(api, s.http);
    printf("port %u\n", port);
    auth_key_create_first(auth, clock_real_ns() / NS_PER_MS, on_first_key, NULL);
    ev_run(s.ev);
    tools_finish(tools);
    executor_finish(executor);
    store_finish(store);
    manager_finish(manager);
    http_server_free(s.http);
    mcp_free(mcp);
    api_free(api);
    gateway_free(s.gateway);
    tools_free(tools);
    template_cache_free(template_cache);
    executor_free(executor);
    manager_free(manager);
    pools_free(pools);
    auth_free(auth);
    store_close(store);
    script_cache_free(script_cache);
    secrets_free(secrets);
    ev_free(s.ev);
    return 0;
}

int main(int argc, char **argv)
{
    if (argc < 3)
        return 2;
    log_setup("api-testd", LOG_WARN);
    snprintf(door, sizeof(door), "%s/jailer.sock", argv[2]);
    snprintf(db, sizeof(db), "%s/db/cove.db", argv[2]);
    snprintf(output, sizeof(output), "%s/output", argv[2]);
    snprintf(sock, sizeof(sock), "%s/api.sock", argv[2]);
    snprintf(pepper_file, sizeof(pepper_file), "%s/token.key", argv[2]);
    if (str_eq(argv[1], "jailer") && argc == 4)
        return jailer(argv[2], argv[3]);
    mkdir(output, 0700);
    return serve();
}
