/* Hints about modules, programs and installations. */
#include "sandbox/hint_internal.h"

#include "core/base/str.h"
#include "core/base/suggest.h"

#define SIMILAR_MAX 3

static const struct {
    const char *name, *debian, *similar, *standard;
    bool network;
} hint_python_modules[] = {
#define PYTHON_MODULE(name, debian, similar, standard, network) { name, debian, similar, standard, network },
#define PYTHON_RENAMED(name, module)
#define NODE_MODULE(name, instead, network)
#include "sandbox/hint_modules.def"
#undef PYTHON_MODULE
#undef PYTHON_RENAMED
};

static const struct {
    const char *name, *module;
} hint_python_renamed[] = {
#define PYTHON_MODULE(name, debian, similar, standard, network)
#define PYTHON_RENAMED(name, module) { name, module },
#include "sandbox/hint_modules.def"
#undef PYTHON_RENAMED
#undef NODE_MODULE
};

static const struct {
    const char *name, *instead;
    bool network;
} hint_node_modules[] = {
#define PYTHON_RENAMED(name, module)
#define NODE_MODULE(name, instead, network) { name, instead, network },
#include "sandbox/hint_modules.def"
#undef PYTHON_MODULE
#undef PYTHON_RENAMED
#undef NODE_MODULE
};

static const struct {
    const char *name, *debian, *others, *text;
} hint_commands[] = {
#define COMMAND(name, debian, others, text) { name, debian, others, text },
#include "sandbox/hint_commands.def"
#undef COMMAND
};

/* --- Python --- */

static bool hint_has_module(const struct hint *h, const char *name)
{
    auto_buf missing = { 0 };

    return h->facts->modules && python_modules_missing(h->facts->modules, name, &missing) == 0;
}

/* Adds those of the names that are there: "lxml and PIL". Returns their number. */
static size_t hint_add_present(struct hint *h, const char *list, bool (*has)(const struct hint *h, const char *name))
{
    auto_buf names = { 0 };
    size_t n = 0;

    for (const char *p = list; *p && n < SIMILAR_MAX; p += *p == ',') {
        auto_free char *name = str_dup_n(p, strcspn(p, ","));

        p += strlen(name);
        if (has(h, name))
            buf_addf(&names, "%s%s", n++ ? ", " : "", name);
    }
    if (n)
        buf_adds(&h->out, names.data);
    return n;
}

static void hint_add_installed(struct hint *h, const char *list)
{
    size_t before = h->out.len;

    buf_adds(&h->out, " Installed and similar: ");
    if (hint_add_present(h, list, hint_has_module)) {
        buf_adds(&h->out, ".");
    } else {
        h->out.len = before;
        h->out.data[before] = '\0';
    }
}

/* Adds what is known about a module that is not installed. */
static void hint_add_python_module(struct hint *h, const char *module)
{
    for (size_t i = 0; i < ARRAY_LEN(hint_python_modules); i++)
        if (str_eq(hint_python_modules[i].name, module)) {
            hint_add_installed(h, hint_python_modules[i].similar);
            if (hint_python_modules[i].standard[0])
                buf_addf(&h->out, " The standard library has %s.", hint_python_modules[i].standard);
            if (hint_python_modules[i].network && !h->facts->has_network)
                buf_adds(&h->out, " There is no network in this sandbox, so it could not reach a server either.");
            hint_add_packages(h, hint_python_modules[i].debian);
            return;
        }
    const char *near = h->facts->modules ? python_modules_nearest(h->facts->modules, module) : NULL;
    if (near)
        buf_addf(&h->out, " Is it misspelled? The module %s is installed.", near);
    hint_add_packages(h, NULL);
}

static bool hint_python_rename(struct hint *h, const char *name)
{
    for (size_t i = 0; i < ARRAY_LEN(hint_python_renamed); i++) {
        const char *module = hint_python_renamed[i].module;
        auto_free char *top = str_dup_n(module, strcspn(module, "."));

        if (!str_eq(hint_python_renamed[i].name, name))
            continue;
        buf_addf(&h->out, "There is no Python module %s: import %s instead", name, module);
        if (hint_has_module(h, top)) {
            buf_adds(&h->out, ", which is installed.");
        } else if (h->facts->modules) {
            buf_adds(&h->out, ", which is not installed either.");
            hint_add_python_module(h, top);
        } else {
            buf_adds(&h->out, ".");
        }
        return true;
    }
    return false;
}

bool hint_python_module(struct hint *h, const char *at UNUSED, const char *end, const char *text UNUSED)
{
    char name[HINT_TOKEN_MAX], top[HINT_TOKEN_MAX];
    bool named = hint_token_quoted(end, name) || hint_token_after(end, name); /* python3 -m NAME: no quotes */

    if (!named) {
        buf_adds(&h->out, "A Python module is not installed.");
        hint_add_packages(h, NULL);
        return true;
    }
    hint_token(name, strcspn(name, "."), top);
    if (hint_python_rename(h, top))
        return true;
    if (strstr(end, "is not a package") || (strchr(name, '.') && hint_has_module(h, top)))
        buf_addf(&h->out,
                 "%s is there, but it has no module %s. A file of yours with that name hides an installed module; "
                 "otherwise it is another version: look at dir(%s).",
                 top, name, top);
    else {
        buf_addf(&h->out, "The Python module %s is not installed.", top);
        hint_add_python_module(h, top);
    }
    return true;
}

bool hint_python_import_name(struct hint *h, const char *at UNUSED, const char *end, const char *text UNUSED)
{
    static const char from[] = " from ";
    char name[HINT_TOKEN_MAX], module[HINT_TOKEN_MAX] = "";
    const char *p = strstr(end, from);

    if (!hint_token_quoted(end, name) || !p || !hint_token_quoted(p + strlen(from), module))
        return false;
    if (strstr(end, "partially initialized"))
        buf_addf(&h->out,
                 "%s is still being imported: two modules import each other, or a file of yours has the name of an "
                 "installed module. Rename the file, or import inside the function.",
                 module);
    else
        buf_addf(&h->out,
                 "%s is installed but has no name %s, so it is another version or the name moved. Look at dir(%s)%s.",
                 module, name, module,
                 str_eq(module, "collections") ? ", and for abstract types at collections.abc" : "");
    return true;
}

/* --- Node --- */

static const char *const node_builtins[] = {
    "assert",
    "async_hooks",
    "buffer",
    "child_process",
    "cluster",
    "console",
    "crypto",
    "dns",
    "events",
    "fs",
    "fs/promises",
    "http",
    "http2",
    "https",
    "module",
    "net",
    "os",
    "path",
    "perf_hooks",
    "process",
    "querystring",
    "readline",
    "stream",
    "string_decoder",
    "test",
    "timers",
    "tls",
    "tty",
    "url",
    "util",
    "v8",
    "vm",
    "worker_threads",
    "zlib",
};

bool hint_node_module(struct hint *h, const char *at UNUSED, const char *end, const char *text UNUSED)
{
    char name[HINT_TOKEN_MAX];
    struct suggest near;

    if (!hint_token_quoted(end, name))
        return false;
    if (name[0] == '.' || name[0] == '/') {
        buf_addf(&h->out,
                 "The file %s of the import does not exist; relative imports begin at the directory of the program, "
                 "/workspace for code that is sent. ",
                 name);
        buf_adds(&h->out, h->facts->place == HINT_EXECUTE ? "Pass it in `files` of the request, with its extension."
                          : h->facts->place == HINT_RUN   ? "Pass its directory with --workspace DIR."
                                                          : "Write the file first, and name its extension.");
        return true;
    }
    buf_addf(&h->out, "The package %s is not installed.", name);
    for (size_t i = 0; i < ARRAY_LEN(hint_node_modules); i++)
        if (str_eq(hint_node_modules[i].name, name)) {
            if (hint_node_modules[i].instead)
                buf_addf(&h->out, " Node itself has %s.", hint_node_modules[i].instead);
            if (hint_node_modules[i].network && !h->facts->has_network)
                buf_adds(&h->out, " There is no network in this sandbox, so it could not reach a server either.");
            hint_add_packages(h, NULL);
            return true;
        }
    suggest_init(&near, name);
    for (size_t i = 0; i < ARRAY_LEN(node_builtins); i++)
        suggest_offer(&near, node_builtins[i]);
    if (near.best)
        buf_addf(&h->out, " Is it misspelled? Node has node:%s.", near.best);
    hint_add_packages(h, NULL);
    return true;
}

/* --- programs --- */

static bool hint_has_program(const struct hint *h, const char *name)
{
    return h->facts->has_program && h->facts->has_program(name);
}

static bool hint_missing_command(struct hint *h, const char *path)
{
    static const char *const python[] = { "import", "from", "def", "print", "class", "elif" };
    static const char *const javascript[] = { "const", "var", "console.log", "require" };
    const char *name = strrchr(path, '/') ? strrchr(path, '/') + 1 : path;

    for (size_t i = 0; i < ARRAY_LEN(python); i++)
        if (str_eq(name, python[i])) {
            buf_addf(&h->out, "%s is not a shell command: this looks like Python. Send it with language python.", name);
            return true;
        }
    for (size_t i = 0; i < ARRAY_LEN(javascript); i++)
        if (str_eq(name, javascript[i])) {
            buf_addf(&h->out, "%s is not a shell command: this looks like JavaScript. Send it with language node.",
                     name);
            return true;
        }
    if (name != path) {
        buf_addf(&h->out, "There is no program %s in the sandbox. Check the path, or use the name only.", path);
        return true;
    }
    buf_addf(&h->out, "The program %s is not installed in this sandbox.", name);
    for (size_t i = 0; i < ARRAY_LEN(hint_commands); i++)
        if (str_eq(hint_commands[i].name, name)) {
            size_t before = h->out.len;

            buf_adds(&h->out, " Use instead: ");
            if (hint_add_present(h, hint_commands[i].others, hint_has_program)) {
                buf_adds(&h->out, ".");
            } else {
                h->out.len = before;
                h->out.data[before] = '\0';
            }
            if (hint_commands[i].text)
                buf_addf(&h->out, " %s", hint_commands[i].text);
            if (hint_commands[i].debian || !hint_commands[i].text)
                hint_add_packages(h, hint_commands[i].debian);
            else if (str_starts(hint_commands[i].text, "Packages"))
                buf_adds(&h->out, " They come from the host.");
            return true;
        }
    hint_add_packages(h, NULL);
    return true;
}

/* "bash: line 1: NAME: command not found". */
bool hint_command_before(struct hint *h, const char *at, const char *end UNUSED, const char *text UNUSED)
{
    char name[HINT_TOKEN_MAX];

    return hint_token_before(hint_start(h), at, name) && hint_missing_command(h, name);
}

/* "/bin/sh: 1: NAME: not found". */
bool hint_command_sh(struct hint *h, const char *at UNUSED, const char *end, const char *text UNUSED)
{
    size_t digits = strspn(end, "0123456789");
    char name[HINT_TOKEN_MAX];

    if (digits == 0 || !str_starts(end + digits, ": "))
        return false;
    const char *begin = end + digits + 2;
    size_t len = strcspn(begin, ":\n");
    return str_starts(begin + len, ": not found") && hint_token(begin, len, name) && hint_missing_command(h, name);
}

bool hint_command_quoted(struct hint *h, const char *at UNUSED, const char *end, const char *text UNUSED)
{
    char name[HINT_TOKEN_MAX];

    return hint_token_quoted(end, name) && hint_missing_command(h, name);
}

/* Node: "spawn NAME ENOENT". */
bool hint_command_spawn(struct hint *h, const char *at UNUSED, const char *end, const char *text UNUSED)
{
    char name[HINT_TOKEN_MAX];
    size_t len = strcspn(end, " \n");

    return str_starts(end + len, " ENOENT") && hint_token(end, len, name) && hint_missing_command(h, name);
}

/* --- installations --- */

bool hint_install(struct hint *h, const char *at UNUSED, const char *end UNUSED, const char *text UNUSED)
{
    static const struct {
        const char *pattern, *tool;
    } tools[] = { { "E: ", "apt-get" },    { "apt-get", "apt-get" }, { "dpkg", "dpkg" }, { "npm", "npm" },
                  { "ENOTCACHED", "npm" }, { "connectivity", "uv" }, { "pip", "pip" },   { "distribution", "pip" } };
    const char *tool = "the installer";

    for (size_t i = 0; i < ARRAY_LEN(tools); i++)
        if (hint_has_text(h, tools[i].pattern)) {
            tool = tools[i].tool;
            break;
        }
    if (h->facts->has_network)
        return hint_refused_destination(h, NULL, NULL, NULL);
    buf_addf(&h->out,
             "Nothing can be installed in this sandbox: it has no network and no root, so %s cannot work and trying "
             "again does not help. Packages come from the host; ",
             tool);
    if (str_eq(tool, "pip"))
        buf_adds(&h->out, "import what is installed there, or use the standard library.");
    else if (str_eq(tool, "npm"))
        buf_adds(&h->out, "use the modules that Node has built in.");
    else
        buf_adds(&h->out, "use the programs that are installed there.");
    return true;
}
