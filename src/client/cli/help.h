/* help.h - renders the table of verbs and options as help on a terminal, as manual pages and as
 * Markdown. Each function appends to `out`. */
#pragma once

#include "client/cli/table.h"

#include "core/base/buf.h"

void help_overview(struct buf *out, const char *version);
void help_verb(struct buf *out, const struct cli_verb *v);
void help_verb_short(struct buf *out, const struct cli_verb *v); /* about 20 lines */

void help_man(struct buf *out, const struct cli_verb *v); /* mdoc source; NULL is cove(1) itself */
void help_markdown(struct buf *out);                      /* docs/cli.md */
void help_errors_markdown(struct buf *out);               /* docs/errors.md */

/* "--name ARG", or "--name[=ARG]". */
void help_flag(struct buf *out, const struct cli_option *o);
