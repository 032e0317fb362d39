/* templates.h - the built-in templates, and the lookup of any template by its name. */
#pragma once

#include "sandbox/template_builtins.h"
#include "store/store.h"

const char *template_builtin_name(size_t i); /* of the i-th built-in template; NULL: there are fewer */
bool template_name_is_builtin(const char *name);
/* For a client that named a template as its runtime. */
int template_as_runtime_error(struct err *err, const char *name);
char *template_builtin_json(const struct template_builtin *t); /* its spec; the caller frees */
/* Fills a row as the store would return it; the caller frees ret->spec_json. */
void template_builtin_row(const struct template_builtin *t, struct store_template *ret);
bool template_is_builtin(const struct store_template *row);

/* Returns the template of the store, otherwise the built-in one. The error about an unknown name
 * lists the names that exist. */
void template_get(struct store *st, const char *name, store_template_fn *done, void *arg);
