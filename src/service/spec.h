/* spec.h - the spec of a sandbox: read from JSON, converted for the engine.
 *
 * A spec begins with the server's defaults; a template and then a request are applied over it, each
 * with only some of the fields. spec_finish() adjusts the remaining limits and checks the whole.
 * The stored form is spec_json(): everything except the environment, which may hold secrets and is
 * in the sandbox already. */
#pragma once

#include "core/base/base.h"
#include "core/base/err.h"
#include "core/base/id.h"
#include "core/base/jsonw.h"
#include "sandbox/engine.h"
#include "policy/languages.h"
#include "policy/policy.h"
#include "core/doc/json_input.h"

#define SPEC_NAME_MAX 63
#define SPEC_ENV_MAX 256
#define SPEC_ENV_TEXT (32 * KIB)
#define SPEC_ENV_SUM (56 * KIB)
#define SPEC_PRELOAD_MAX 64
#define SPEC_PRELOAD_SUM 511
#define SPEC_METADATA_MAX 32
#define SPEC_METADATA_KEY 64
#define SPEC_METADATA_VALUE 512

struct store_template;

enum idle_action { IDLE_END, IDLE_PAUSE };
extern const char *const idle_action_names[]; /* NULL-terminated */

struct spec {
    char runtime[40]; /* name of the language; "": not chosen yet */
    enum level level;
    enum driver_id driver;
    bool has_driver;               /* false: the operator's default; custom_policy_apply_operator_limits sets it */
    struct network_policy network; /* owns its text */
    struct limits limits;
    uint64_t explicit_limits; /* bit per limit that a template or request set */
    bool cpu_pinning;
    enum idle_action idle_action;
    char **env; /* "NAME=value", NULL-terminated; NULL: none */
    size_t nenv;
    char name[SPEC_NAME_MAX + 1]; /* of the sandbox, for the row; "": none */
    json_t *metadata;             /* an object of strings, or NULL */
    char *preload;                /* modules that a zygote loads, comma-separated; from a template; NULL: not set */
    struct zygote_spec zygote;    /* set by spec_finish; language NULL: no zygote */
    char created_by[ID_SIZE];     /* the user or key that requests it, for the row; "": the local owner */

    /* LEVEL_CUSTOM: the parts of the policy other than limits and variables */
    char *policy; /* the document for display: JSON without the values of variables */
    char policy_name[POLICY_NAME_MAX];
    bool has_profile; /* false: the language decides */
    enum profile profile;
    uint32_t grants;
    char hidden_paths[POLICY_PATHS_MAX][POLICY_TARGET_TEXT + 1]; /* paths that appear empty */
    size_t nhidden_paths;
    /* Denied system calls; includes those of the operator limits, also without a policy. */
    uint64_t deny[FILTER_DENY_WORDS];
};

void spec_init(struct spec *s);
void spec_done(struct spec *s);

/* Only a sandbox may name a template, only a template may have preload. */
enum spec_of { SPEC_OF_SANDBOX, SPEC_OF_TEMPLATE };
/* Applies the fields of the object over the spec. Variables and metadata are added to the existing
 * ones. ret_details may be NULL; *ret_details is NULL or a JSON object with details of the error,
 * which the caller frees. */
int spec_read(struct spec *s, const json_t *object, enum spec_of of, char **ret_details, struct err *err);
/* Sets the pairs of an object in *metadata (NULL: empty), and removes those that are null. After a
 * failure *metadata may be changed. */
int spec_merge_metadata(json_t **metadata, const json_t *pairs, struct err *err);
/* For the name of a sandbox: lower-case letters, digits, '.', '_' and '-', and not like an id. */
int spec_check_name(const char *name, struct err *err);
/* Applies the template of this name; `reply` and `row` are the store's reply about it. */
int spec_read_template(struct spec *s, const char *name, const struct err *reply, const struct store_template *row,
                       struct err *err);
/* Without a runtime the spec becomes one of python. */
int spec_finish(struct spec *s, struct err *err);
/* Converts the spec for the engine; *ret points into s. */
void spec_fill_sandbox_spec(const struct spec *s, struct sandbox_spec *ret);

const char *spec_limit_field(enum limit l);            /* its field in requests: "memoryBytes" */
const char *spec_limit_name(enum limit l);             /* its name in requests: "resources.memoryBytes" */
void spec_json(const struct spec *s, struct jsonw *w); /* members of an open object: runtime ... idleAction */
char *spec_metadata_json(const struct spec *s);        /* the caller frees */

/* Reads variables from an object, as "NAME=value". On failure nothing is added. */
int spec_read_env(const json_t *object, const char *path, char ***env, size_t *nenv, struct err *err);
void spec_env_free(char **env);
