/* spec.h - what somebody wants of a sandbox, as JSON says it and as the engine takes it.
 *
 * A spec begins with the server's presets; a template and then a request are read over it, each of them saying only
 * some of it. spec_finish() makes the rest fit and checks the whole. What is written down of a sandbox is spec_json():
 * everything but its environment, which may hold secrets and is in the sandbox already. */
#pragma once

#include "core/base/base.h"
#include "core/base/err.h"
#include "core/base/id.h"
#include "core/base/jsonw.h"
#include "sandbox/engine.h"
#include "sandbox/languages.h"
#include "policy/policy.h"
#include "service/json_input.h"

#define SPEC_ENV_MAX 256
#define SPEC_ENV_TEXT (32 * KIB)
#define SPEC_ENV_SUM (56 * KIB)
#define SPEC_PRELOAD_MAX 64
#define SPEC_PRELOAD_SUM 511
#define SPEC_METADATA_MAX 32
#define SPEC_METADATA_KEY 64
#define SPEC_METADATA_VALUE 512

enum idle_action { IDLE_END, IDLE_PAUSE };
extern const char *const idle_action_names[]; /* NULL-terminated */

struct spec {
    char runtime[40]; /* its name; "" while nobody said */
    enum level level;
    struct limits limits;
    uint64_t explicit_limits; /* bit per limit that was said */
    bool cpu_pinning;
    enum idle_action idle_action;
    char **env; /* "NAME=value", NULL-terminated; NULL: none */
    size_t nenv;
    json_t *metadata;          /* an object of texts, or NULL */
    char *preload;             /* what a zygote loads, of a template: names with commas; NULL: nobody said */
    struct zygote_spec zygote; /* of spec_finish; without a language: there is none */
    char created_by[ID_SIZE];  /* the user or the key that asks for it, for the row; "": the local owner */

    /* LEVEL_CUSTOM: what its policy says beyond limits and variables */
    char *policy; /* the document as it is shown: JSON without the values of variables */
    char policy_name[POLICY_NAME_MAX];
    bool has_profile; /* otherwise the runtime decides */
    enum profile profile;
    uint32_t grants;
    char hidden_paths[POLICY_PATHS_MAX][POLICY_TARGET_TEXT + 1]; /* paths that appear empty */
    size_t nhidden_paths;
    uint64_t deny[FILTER_DENY_WORDS]; /* also without a policy: those of the floor */
};

void spec_init(struct spec *s);
void spec_done(struct spec *s);

enum spec_of { SPEC_OF_SANDBOX, SPEC_OF_TEMPLATE }; /* only the former may name a template, only the latter preloads */
/* Reads the fields that are there over what the spec has. Variables and metadata are added to those before.
 * *ret_details (or NULL): a JSON object with more about the error, for the caller to free, or NULL. */
int spec_read(struct spec *s, const json_t *object, enum spec_of of, char **ret_details, struct err *err);
int spec_finish(struct spec *s, struct err *err);
/* The spec as the engine takes it; points into s. */
void spec_fill_sandbox_spec(const struct spec *s, struct sandbox_spec *ret);

const char *spec_limit_name(enum limit l);             /* as a request calls it: "resources.memoryBytes" */
void spec_json(const struct spec *s, struct jsonw *w); /* members of an open object: runtime ... idleAction */
char *spec_metadata_json(const struct spec *s);        /* the caller frees */

/* Variables from an object, as "NAME=value". On failure nothing is added. */
int spec_read_env(const json_t *object, const char *path, char ***env, size_t *nenv, struct err *err);
void spec_env_free(char **env);
