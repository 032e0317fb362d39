/* store_host.h - a store in its own directory, and helpers to make its calls one after the
 * other. */
#pragma once

#include "tests/unit/test.h"

#include "store/rows.h"
#include "store/tenants.h"

extern struct ev *loop;
extern struct store *store;
extern enum store_scheme host_scheme; /* of the store under test */
extern char host_dir[64];             /* made for each test and removed after it */

int host_setup(void **state);    /* directory, loop and an open store with the tenants anna and bert */
int host_teardown(void **state); /* removes all of it */
void host_reopen(void);
int host_open(struct err *err); /* opens `store` */
char *host_path(void);          /* of the database; the caller frees */

/* The result of the last call. */
struct got {
    bool answered;
    bool failed;
    struct err err;
    const struct row_table *table;
    struct row_list rows; /* copies */
    char *next;           /* cursor */
    bool fresh;
    uint64_t seq;
    uint64_t total; /* scripts that were found, or evicted */
    char *text;
    struct store_counts counts;
    struct store_gc_report gc;
    char (*removed)[ID_SIZE];
};
extern struct got got;

/* Callbacks that fill `got`. */
store_done_fn on_done;
store_sandbox_fn on_sandbox;
store_sandboxes_fn on_sandboxes;
store_execution_fn on_execution;
store_executions_fn on_executions;
store_key_fn on_key;
store_keys_fn on_keys;
store_template_fn on_template;
store_templates_fn on_templates;
store_pool_fn on_pool;
store_pools_fn on_pools;
store_script_fn on_script;
store_script_kept_fn on_script_kept;
store_scripts_fn on_scripts;
store_secret_put_fn on_secret_put;
store_secrets_fn on_secrets;
store_event_fn on_event;
store_events_fn on_events;
store_idem_fn on_idem;
store_text_fn on_text;
store_counts_fn on_counts;
store_gc_fn on_gc;
store_tenant_fn on_tenant;
store_tenants_fn on_tenants;
store_user_fn on_user;
store_users_fn on_users;
store_role_fn on_role;
store_roles_fn on_roles;
store_login_fn on_login;

void host_begin(void);                                         /* clears the last answer */
void host_await(void);                                         /* turns the loop until there is an answer */
void host_check(const char *what, const char *file, int line); /* fails the test when the call failed */
void host_check_err(enum err_id id, const char *what, const char *file, int line);

/* Makes one call and waits for it. OK expects success, FAILS a certain error. */
#define OK(call)                               \
    do {                                       \
        host_begin();                          \
        call;                                  \
        host_await();                          \
        host_check(#call, __FILE__, __LINE__); \
    } while (0)
#define FAILS(id, call)                                \
    do {                                               \
        host_begin();                                  \
        call;                                          \
        host_await();                                  \
        host_check_err(id, #call, __FILE__, __LINE__); \
    } while (0)

#define GOT(type, i) (&((struct type *)(void *)got.rows.rows)[i])

/* Rows with an id of their own and just enough content; nothing to free. */
struct store_sandbox a_sandbox(const char *owner, uint64_t created_ms);
struct store_execution an_execution(const struct store_sandbox *sb, uint64_t created_ms);
struct store_key a_key(const char *owner, uint8_t hash);
struct store_user a_user(const char *owner, const char *name, const char *role);
