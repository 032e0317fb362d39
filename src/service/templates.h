/* templates.h - templates that every server has, and where to find any of them by its name. */
#pragma once

#include "sandbox/template_builtins.h"
#include "store/store.h"

const char *template_builtin_name(size_t i); /* of the i-th one; NULL: there are fewer */
bool template_name_is_builtin(const char *name);
int template_not_found_error(struct err *err, const char *name); /* for who asked for it */
char *template_builtin_json(const struct template_builtin *t);   /* its spec; the caller frees */
/* As the store brings one; the spec is the caller's to free. */
void template_builtin_row(const struct template_builtin *t, struct store_template *ret);
bool template_is_builtin(const struct store_template *row); /* nobody made it */

/* The store's, or the one that is built in. */
void template_get(struct store *st, const char *name, store_template_fn *done, void *arg);
