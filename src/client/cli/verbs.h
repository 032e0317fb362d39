/* verbs.h - the implementation of each verb. All functions return the exit status
 * of the process. */
#pragma once

#include "client/cli/args.h"
#include "client/cli/cli.h"

int verb_run(const struct args *a, const struct cli_settings *settings);

int verb_doctor(const struct args *a, const struct cli_settings *settings);

int verb_runtimes(const struct args *a);
int verb_explain(const struct args *a);
int verb_errors(const struct args *a);
int verb_completion(const struct args *a, const struct cli_setting *server);
int verb_help(const struct args *a, const char *version);
int verb_version(const char *version);

/* Prints the manual pages and the generated pages of docs/, for the build: `cove __man [VERB]`,
 * `cove __docs cli|errors`. */
int verb_gendocs(int argc, char **argv);
