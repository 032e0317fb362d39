/* The scripts hold plain lists made from the table, so that completion of verbs and flags never
 * starts cove. Names that only a server knows come from `cove __complete`, which gets the words of
 * the line. Help texts are quoted for the shell: single quotes in all three shells, with the
 * quote itself written as '\''. */
#include "client/cli/completion.h"

#include "client/cli/table.h"

#include "core/base/err.h"
#include "core/base/str.h"
#include "core/base/text.h"

static void completion_add_quoted(struct buf *out, const char *s, const char *escape)
{
    for (; *s; s++) {
        if (*s == '\'')
            buf_adds(out, "'\\''");
        else if (strchr(escape, *s))
            buf_addf(out, "\\%c", *s);
        else
            buf_add(out, s, 1);
    }
}

static void completion_add_words(struct buf *out, const char *const *list)
{
    for (size_t i = 0; list[i]; i++)
        buf_addf(out, "%s%s", i ? " " : "", list[i]);
}

static void completion_add_error_codes(struct buf *out)
{
    for (int i = 1; i < ERR_COUNT; i++)
        buf_addf(out, "%s%s", i > 1 ? " " : "", err_info((enum err_id)i)->code);
}

/* --- bash --- */

static void completion_bash_values(struct buf *out, const struct cli_verb *v, const struct cli_setting *server)
{
    buf_addf(out, "    %s)\n        case \"$prev\" in\n", v->name);
    for (const struct cli_option *o = NULL; (o = cli_option_next(v, o));) {
        if (!o->arg || cli_arg_optional(o))
            continue;
        buf_addf(out, "        --%s", o->name);
        if (o->letter)
            buf_addf(out, "|-%c", o->letter);
        buf_adds(out, ") ");
        switch (o->complete) {
        case COMPLETE_FILE:
            buf_adds(out, "mapfile -t COMPREPLY < <(compgen -f -- \"$cur\")");
            break;
        case COMPLETE_DIR:
            buf_adds(out, "mapfile -t COMPREPLY < <(compgen -d -- \"$cur\")");
            break;
        case COMPLETE_POLICY: /* a name or a file */
            buf_adds(out, "mapfile -t COMPREPLY < <(compgen -f -W '");
            completion_add_words(out, cli_completion_values(o->complete));
            buf_adds(out, "' -- \"$cur\")");
            break;
        case COMPLETE_ENV:
            buf_adds(out, "mapfile -t COMPREPLY < <(compgen -e -- \"$cur\")");
            break;
        case COMPLETE_NAME:
            buf_adds(out, "_cove_names");
            break;
        default:
            buf_adds(out, "mapfile -t COMPREPLY < <(compgen -W '");
            completion_add_words(out, cli_completion_values(o->complete));
            buf_adds(out, "' -- \"$cur\")");
        }
        buf_adds(out, "; return ;;\n");
    }
    buf_adds(out, "        esac\n        flags='");
    for (const struct cli_option *o = NULL; (o = cli_option_next(v, o));)
        buf_addf(out, "--%s ", o->name);
    for (; v->id == VERB_SERVE && server->name; server++) {
        auto_free char *flag = text_respell_name("--", server->name, '-', false);

        buf_addf(out, "%s ", flag);
    }
    buf_adds(out, "' ;;\n");
}

static void completion_bash(struct buf *out, const struct cli_setting *server)
{
    size_t n;
    const struct cli_verb *v = cli_verbs(&n);

    buf_adds(out,
             "# bash completion of cove\n_cove_names() { # not compgen -W, which would expand $ in a name\n"
             "    local name\n    COMPREPLY=()\n"
             "    while IFS= read -r name; do\n"
             "        if [[ $name == \"$cur\"* ]]; then COMPREPLY+=(\"$name\"); fi\n"
             "    done < <(cove __complete \"${COMP_WORDS[@]:1:COMP_CWORD}\" 2>/dev/null)\n}\n_cove() {\n"
             "    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} verb=${COMP_WORDS[1]} flags i\n"
             "    COMPREPLY=()\n    if [ \"$COMP_CWORD\" -eq 1 ]; then\n        mapfile -t COMPREPLY < <(compgen -W '");
    for (size_t i = 0; i < n; i++)
        buf_addf(out, "%s ", v[i].name);
    buf_adds(out, "--help --version' -- \"$cur\")\n        return\n    fi\n"
                  "    for ((i = 2; i < COMP_CWORD; i++)); do\n"
                  "        if [ \"${COMP_WORDS[i]}\" = -- ]; then mapfile -t COMPREPLY < <(compgen -c -f -- \"$cur\"); "
                  "return; fi\n"
                  "    done\n    case \"$verb\" in\n");
    for (size_t i = 0; i < n; i++)
        completion_bash_values(out, &v[i], server);
    buf_adds(out, "    esac\n    case \"$verb:$COMP_CWORD:$cur\" in\n    *:-*) ;;\n");
    for (size_t i = 0; i < n; i++) {
        if (!v[i].words)
            continue;
        buf_addf(out, "    %s:2:*) mapfile -t COMPREPLY < <(compgen -W '", v[i].name);
        completion_add_words(out, v[i].words);
        buf_adds(out, "' -- \"$cur\"); return ;;\n");
    }
    buf_adds(out, "    esac\n    case \"$verb:$cur\" in\n    *:-*) mapfile -t COMPREPLY < <(compgen -W \"$flags\" -- "
                  "\"$cur\") ;;\n"
                  "    completion:*) mapfile -t COMPREPLY < <(compgen -W 'bash zsh fish' -- \"$cur\") ;;\n"
                  "    help:*) mapfile -t COMPREPLY < <(compgen -W '");
    for (size_t i = 0; i < n; i++)
        buf_addf(out, "%s ", v[i].name);
    buf_adds(out, "' -- \"$cur\") ;;\n    errors:*) mapfile -t COMPREPLY < <(compgen -W '");
    completion_add_error_codes(out);
    buf_adds(out, "' -- \"$cur\") ;;\n    run:*|execute:*|explain:*) mapfile -t COMPREPLY < <(compgen -f -- "
                  "\"$cur\") ;;\n"
                  "    *) _cove_names\n"
                  "        if [[ $verb == cp || $verb == policy ]]; then mapfile -t -O ${#COMPREPLY[@]} COMPREPLY < "
                  "<(compgen -f -- "
                  "\"$cur\"); fi ;;\n"
                  "    esac\n}\n"
                  "complete -o filenames -F _cove cove\n");
}

/* --- zsh --- */

static void completion_zsh_option(struct buf *out, const struct cli_option *o)
{
    bool many = o->id == OPT_ENV || o->id == OPT_BIND_RO || o->id == OPT_ALLOW || o->id == OPT_DENY ||
                o->id == OPT_SECRET;

    buf_adds(out, "            ");
    if (o->letter)
        buf_addf(out, "%s'{-%c,--%s}'", many ? "'*" : "'", o->letter, o->name);
    else
        buf_addf(out, "%s--%s", many ? "'*" : "'", o->name);
    if (cli_arg_optional(o))
        buf_adds(out, "=-");
    else if (o->arg && !o->letter)
        buf_adds(out, "=");
    buf_adds(out, "[");
    completion_add_quoted(out, o->help, "[]:");
    buf_adds(out, "]");
    if (o->arg) {
        buf_adds(out, cli_arg_optional(o) ? "::" : ":");
        completion_add_quoted(out, o->arg, "[]:");
        buf_adds(out, ":");
        if (o->complete == COMPLETE_FILE)
            buf_adds(out, "_files");
        else if (o->complete == COMPLETE_DIR)
            buf_adds(out, "_files -/");
        else if (o->complete == COMPLETE_ENV)
            buf_adds(out, "_parameters");
        else if (o->complete == COMPLETE_NAME)
            buf_adds(out, "_cove_names");
        else if (cli_completion_values(o->complete)[0]) {
            buf_adds(out, "(");
            completion_add_words(out, cli_completion_values(o->complete));
            buf_adds(out, ")");
        }
    }
    buf_adds(out, "' \\\n");
}

static void completion_zsh_setting(struct buf *out, const struct cli_setting *s)
{
    auto_free char *flag = text_respell_name("--", s->name, '-', false);

    buf_addf(out, "            '%s=[", flag);
    completion_add_quoted(out, s->help, "[]:");
    buf_adds(out, "]:value:_files' \\\n");
}

static void completion_zsh(struct buf *out, const struct cli_setting *server)
{
    size_t n;
    const struct cli_verb *v = cli_verbs(&n);

    buf_adds(out, "#compdef cove\n_cove_names() {\n    local -a names\n"
                  "    names=(${(f)\"$(cove __complete \"${(@)words[1,CURRENT]}\" 2>/dev/null)\"})\n"
                  "    compadd -a names\n}\n_cove() {\n    local -a verbs\n    local curcontext=$curcontext state\n    "
                  "verbs=(\n");
    for (size_t i = 0; i < n; i++) {
        buf_addf(out, "        '%s:", v[i].name);
        completion_add_quoted(out, v[i].brief, ":");
        buf_adds(out, "'\n");
    }
    buf_adds(out, "    )\n    _arguments -C '1:verb:->verb' '*::argument:->rest'\n    case $state in\n"
                  "    verb) _describe verb verbs ;;\n    rest)\n        case $words[1] in\n");
    for (size_t i = 0; i < n; i++) {
        buf_addf(out, "        %s)\n            _arguments -S \\\n", v[i].name);
        for (const struct cli_option *o = NULL; (o = cli_option_next(&v[i], o));)
            completion_zsh_option(out, o);
        for (const struct cli_setting *s = server; v[i].id == VERB_SERVE && s->name; s++)
            completion_zsh_setting(out, s);
        if (v[i].id == VERB_RUN)
            buf_adds(out, "            '1:program or script:{_files; _command_names -e}' '*:argument:_files' ;;\n");
        else if (v[i].id == VERB_COMPLETION)
            buf_adds(out, "            '1:shell:(bash zsh fish)' ;;\n");
        else if (v[i].words) {
            buf_adds(out, "            '1:command:(");
            completion_add_words(out, v[i].words);
            buf_adds(out, ")' '*:argument:_cove_names' ;;\n");
        } else if (v[i].id == VERB_ERRORS) {
            buf_adds(out, "            '1:code:(");
            completion_add_error_codes(out);
            buf_adds(out, ")' ;;\n");
        } else if (v[i].id == VERB_CP)
            buf_adds(out, "            '*:file:{_cove_names; _files}' ;;\n");
        else if (v[i].id == VERB_EXPLAIN || v[i].id == VERB_EXECUTE || v[i].id == VERB_VALIDATE)
            buf_adds(out, "            '*:file:_files' ;;\n");
        else
            buf_adds(out, "            '*:argument:_cove_names' ;;\n");
    }
    buf_adds(out, "        esac ;;\n    esac\n}\n_cove \"$@\"\n");
}

/* --- fish --- */

static void completion_fish(struct buf *out, const struct cli_setting *server)
{
    size_t n;
    const struct cli_verb *v = cli_verbs(&n);

    buf_adds(out, "# fish completion of cove\ncomplete -c cove -f\n");
    for (size_t i = 0; i < n; i++) {
        buf_addf(out, "complete -c cove -n __fish_use_subcommand -a %s -d '", v[i].name);
        completion_add_quoted(out, v[i].brief, "");
        buf_adds(out, "'\n");
    }
    for (size_t i = 0; i < n; i++) {
        if (!v[i].words)
            continue;
        buf_addf(out, "complete -c cove -n '__fish_seen_subcommand_from %s' -a '", v[i].name);
        completion_add_words(out, v[i].words);
        buf_adds(out, "'\n");
    }
    for (size_t i = 0; i < n; i++)
        for (const struct cli_option *o = NULL; (o = cli_option_next(&v[i], o));) {
            buf_addf(out, "complete -c cove -n '__fish_seen_subcommand_from %s' -l %s", v[i].name, o->name);
            if (o->letter)
                buf_addf(out, " -s %c", o->letter);
            if (o->arg && !cli_arg_optional(o))
                buf_adds(out, " -r");
            if (o->complete == COMPLETE_FILE)
                buf_adds(out, " -F");
            else if (o->complete == COMPLETE_DIR)
                buf_adds(out, " -a '(__fish_complete_directories)'");
            else if (cli_completion_values(o->complete)[0]) {
                buf_adds(out, " -a '");
                completion_add_words(out, cli_completion_values(o->complete));
                buf_adds(out, "'");
            }
            buf_adds(out, " -d '");
            completion_add_quoted(out, o->help, "");
            buf_adds(out, "'\n");
        }
    for (; server->name; server++) {
        auto_free char *flag = text_respell_name("", server->name, '-', false);

        buf_addf(out, "complete -c cove -n '__fish_seen_subcommand_from serve' -l %s -r -F -d '", flag);
        completion_add_quoted(out, server->help, "");
        buf_adds(out, "'\n");
    }
    buf_adds(out, "complete -c cove -n '__fish_seen_subcommand_from run execute cp policy explain' -F\n"
                  "complete -c cove -n '__fish_seen_subcommand_from completion' -a 'bash zsh fish'\n"
                  "complete -c cove -n 'not __fish_use_subcommand' "
                  "-a '(cove __complete (commandline -opc)[2..] (commandline -ct) 2>/dev/null)'\n"
                  "complete -c cove -n '__fish_seen_subcommand_from errors' -a '");
    completion_add_error_codes(out);
    buf_adds(out, "'\n");
}

bool completion_script(const char *shell, const struct cli_setting *server, struct buf *out)
{
    if (str_eq(shell, "bash"))
        completion_bash(out, server);
    else if (str_eq(shell, "zsh"))
        completion_zsh(out, server);
    else if (str_eq(shell, "fish"))
        completion_fish(out, server);
    else
        return false;
    return true;
}
