/* All options stand in one array with the verb as a column; a verb's options are found by walking it. Limits come from
 * policy/limits.def by the preprocessor, so a limit that gets a flag there has it here, in the help and in the manual
 * without another line; limits without a flag are rows without a name, and the walk skips them. */
#include "client/cli/table.h"

#include "core/base/str.h"

#include <stdio.h>

#define ARG_BYTES "SIZE"
#define ARG_COUNT "N"
#define ARG_MS "TIME"
#define ARG_MILLICPU "CPUS"
#define ARG_CPUSET "LIST"

static const struct cli_option cli_option_table[] = {
#define OPT(verb, id, name, letter, arg, dflt, group, complete, help) \
    { VERB_##verb, OPT_##id, name, letter, arg, dflt, GROUP_##group, COMPLETE_##complete, help },
#define LIMIT_OPT(verb, id, name, arg, help) \
    { VERB_##verb, OPT_LIMIT + LIMIT_##id, name, 0, arg, NULL, GROUP_LIMITS, COMPLETE_NONE, help },
#include "client/cli/options.def"
#undef OPT
#undef LIMIT_OPT
#define LIMIT(id, name, flag, unit, dflt, min, max, zero, action, help) \
    { VERB_RUN, OPT_LIMIT + LIMIT_##id, flag, 0, ARG_##unit, NULL, GROUP_LIMITS, COMPLETE_NONE, help },
#include "policy/limits.def"
#undef LIMIT
};

/* clang-format off */
#define LIST(...) ((const char *const[]){ __VA_ARGS__, NULL })
#define EXAMPLES(...) ((const struct cli_example[]){ __VA_ARGS__, { NULL, NULL } })

static const struct cli_verb cli_verb_table[] = {
    { VERB_RUN, "run", "run a program in a fresh sandbox that is gone afterwards",
      LIST("run [FLAGS] [--] PROGRAM [ARGUMENT...]",
           "run [FLAGS] SCRIPT [ARGUMENT...]",
           "run [FLAGS] --runtime NAME (-c CODE | -) [ARGUMENT...]"),
      LIST("Runs one program behind walls: its own namespaces, a read-only view of the system, no network, no privileges, a short list of system calls, and limits on memory, processors, processes, files and time. A wall that this host cannot raise is an error; cove never runs code with less than it says.",
           "After -- stands a program that exists inside the sandbox (the host's /usr, /bin and /lib are there, read-only). Without --, a name that is a file of yours is taken as a script: its ending (.py .js .mjs .cjs .sh .bash) or its #! line says what runs it, and the sandbox sees that one file at /mnt/script. A script below --workspace is run in its place there, next to its neighbours. Flags of cove come before the program; all that follows belongs to the program.",
           "The program starts in /workspace, which is empty unless --workspace says otherwise, with none of your environment variables. Its output streams as it comes. Piped input is passed on; a terminal only with -i or -t. Ctrl-C reaches the program; if it does not end, press it again. A reader that is slow slows the program down."),
      EXAMPLES({ "cove run -- ls -l /", "look around in a sandbox" },
               { "cove run --runtime python -c 'print(1)'", "run a line of Python" },
               { "cove run script.py a b", "run a script with arguments" },
               { "echo 'console.log(1)' | cove run --runtime node -", "run a program that comes through a pipe" },
               { "cove run --workspace .:cow -- make", "try something on your files; they stay as they are" },
               { "cove run --memory 64M --timeout 2s -- ./prog", "with tighter limits" },
               { "cove run --json --runtime python -c 'print(1)'", "one JSON object, for programs" },
               { "cove run -t -- bash", "a shell to try the walls from inside" },
               { "cove run --policy debug -- strace -f true", "let programs trace each other" },
               { "cove run --dry-run -- true", "what would be enforced" }),
      true },
    { VERB_ENTER, "enter", "run a shell or a command in a kept sandbox",
      LIST("enter [FLAGS] ID [--] [COMMAND [ARGUMENT...]]"),
      LIST("Thaws a sandbox that `cove run --keep` left behind, runs the command in it (bash or sh when none is given), and freezes it again. The walls and limits are those it was made with. Without the whole ID, its beginning is enough if only one kept sandbox begins so."),
      EXAMPLES({ "cove enter sbq7", "a shell in the kept sandbox whose name begins so" },
               { "cove enter sbq7 -- ls -l /workspace", "one command" }),
      true },
    { VERB_LS, "ls", "list kept sandboxes",
      LIST("ls [FLAGS]"),
      LIST("Lists the sandboxes that `cove run --keep` left behind, and how long ago."),
      EXAMPLES({ "cove ls", "one line for each" }),
      false },
    { VERB_RM, "rm", "end kept sandboxes",
      LIST("rm [FLAGS] ID...", "rm --all"),
      LIST("Ends every process of a kept sandbox and removes every trace of it: mounts, control groups, directories. The beginning of an ID is enough if only one kept sandbox begins so."),
      EXAMPLES({ "cove rm sbq7", "end one" }, { "cove rm --all", "end all of them" }),
      false },
    { VERB_SERVE, "serve", "run the server: sandboxes over HTTP",
      LIST("serve [--config FILE] [SETTINGS]", "serve --print-config [--json]"),
      LIST("Starts the server and keeps it running: the jailer that builds sandboxes, the monitor that counts refused system calls, and coved, which answers requests as a user of its own, without any privilege. Whatever of these dies is started again; sandboxes outlive coved. It listens on 127.0.0.1:8700 and on a Unix socket. The first start prints a key, once.",
           "Settings come from /etc/cove/cove.yaml or the file that --config names, then from COVE_* variables, then from flags; `cove serve --help` lists them with their defaults, and docs/configuration.md explains them. A setting that does not exist is an error that names the nearest one. --print-config prints all of them with where each came from.",
           "Ctrl-C or SIGTERM stops it: requests may finish within drainTimeout, then every sandbox is ended. The units in deploy/systemd run the same processes under systemd."),
      EXAMPLES({ "cove serve", "with the defaults" },
               { "cove serve --listen 0.0.0.0:8700 --allowed-hosts cove.example.org", "for other machines" },
               { "cove serve --state-dir /srv/cove", "everything below another directory" },
               { "cove serve --print-config", "what is set, and where" }),
      false, "cove-serve" },
    { VERB_SANDBOX, "sandbox", "create, list and end sandboxes of a server",
      LIST("sandbox create [FLAGS]", "sandbox ls [FLAGS]", "sandbox info|rm|pause|resume ID...", "sandbox extend --lifetime TIME ID..."),
      LIST("A sandbox of a server lives until it is ended, its lifetime is over or nothing ran in it for too long. create prints its ID; elsewhere the beginning of an ID is enough if only one sandbox begins so. One that has ended is still listed, with the reason, until the server forgets it.",
           "The server is the one of --url or COVE_URL, with the key in COVE_API_KEY and, for https, the authority to trust in COVE_CACERT; without either, the one of `cove login`, or the one that runs on this machine, which knows its owner without a key."),
      EXAMPLES({ "cove sandbox create --lifetime 1h -m task=42", "make one and print its ID" },
               { "cove sandbox ls --state running", "what is alive" },
               { "cove sandbox rm sbq7", "end it" }),
      false, "cove-ctl", LIST("create", "ls", "info", "rm", "pause", "resume", "extend") },
    { VERB_EXEC, "exec", "run something in a sandbox of a server",
      LIST("exec [FLAGS] SANDBOX [--] COMMAND...", "exec [FLAGS] SANDBOX -c CODE", "exec -t [FLAGS] SANDBOX [COMMAND...]"),
      LIST("Output comes as it is written, and the exit status is that of the program. Standard input goes to it as it comes, unless it is a terminal and there is no -i. Ctrl-C ends the execution. If the connection breaks, the execution goes on, and its output is taken up where it was."),
      EXAMPLES({ "cove exec sbq7 -- ls -l", "a command" },
               { "cove exec sbq7 -c 'print(6 * 7)'", "code in its language" },
               { "cove exec -it sbq7", "a shell on a terminal" },
               { "cove exec -b sbq7 -- ./server", "leave it running" }),
      true, "cove-ctl" },
    { VERB_EXECUTE, "execute", "run something in a fresh sandbox of a server, and only that",
      LIST("execute [FLAGS] -c CODE", "execute [FLAGS] FILE", "execute [FLAGS] -- COMMAND..."),
      LIST("One sandbox that nobody had before, one program, one answer; then nothing is left of it on the server but the record that it was run and what it used. Code shows what it writes, displays and results in, and an exception with its traceback, for which it ends with status 1. Code that ends itself (exit, sys.exit) ends with its own status. A FILE is code in the language of its ending. Standard input goes along whole, unless it is a terminal.",
           "Files go in with --file and come back with --output, to the same place below the directory of --save or this one. Ctrl-C ends it."),
      EXAMPLES({ "cove execute -c '6 * 7'", "Python" },
               { "cove execute --file data.csv --output 'plots/*.png' analyse.py", "a script with its data, and the pictures that it made" },
               { "cove execute --template python-data --save plots plot.py", "NumPy, pandas and matplotlib at hand, and the pictures that it shows" },
               { "cove execute --language bash -c 'uname -a'", "another language" },
               { "cove execute --json -c '[1, 2]' </dev/null", "everything that is known of it, for a program" },
               { "cove execute -- ls -l /", "a command" }),
      true, "cove-ctl" },
    { VERB_CONTEXT, "context", "run code in interpreters that keep their state",
      LIST("context create [FLAGS] SANDBOX", "context ls SANDBOX", "context exec [FLAGS] SANDBOX [CONTEXT]", "context interrupt|restart|fork|rm SANDBOX [CONTEXT]"),
      LIST("A context is an interpreter in a sandbox of a server: what one exec defines, the next one finds. create prints its ID; elsewhere the beginning of an ID is enough, and none at all where a sandbox has one context.",
           "exec takes code from -c or standard input and shows what it writes, displays and results in, and an exception with its traceback, for which it ends with status 1. Code that asks for a line is given one of yours. Ctrl-C interrupts it and keeps the variables; what does not heed that is killed, and the interpreter begins anew. Pictures go to files with --save.",
           "fork makes another context with the live state of this one, variables and modules and all, in a few milliseconds, and prints its ID; from then on each goes its own way. The context must be idle, of Python, and run no threads of its own."),
      EXAMPLES({ "cove context create sbq7", "a Python interpreter in this sandbox" },
               { "cove context exec sbq7 -c 'x = 6 * 7'", "remember something" },
               { "cove context exec sbq7 -c x", "and ask for it" },
               { "cove context fork sbq7", "another one that knows the same" },
               { "cove context exec --save plots sbq7 < plot.py", "keep the pictures that it shows" }),
      false, "cove-ctl", LIST("create", "ls", "exec", "interrupt", "restart", "fork", "rm") },
    { VERB_ATTACH, "attach", "sit down at a terminal in a sandbox of a server",
      LIST("attach [FLAGS] SANDBOX [EXECUTION]"),
      LIST("A terminal that `cove exec -t` or the REST interface opened, while it runs; without an EXECUTION it is the only one. The end of what it wrote is shown first. Several may sit at one: all see the same, all may type, and its size is that of whoever came or changed theirs last. Ctrl-P Ctrl-Q leaves it running. If the connection breaks, or the server is restarted, it is taken up where it was. The exit status is that of the program.",
           "What runs there writes to your terminal as it likes, escape sequences included: attach only to what you would let write there."),
      EXAMPLES({ "cove attach sbq7", "the only terminal of a sandbox" }),
      true, "cove-ctl" },
    { VERB_CP, "cp", "copy files into a sandbox of a server, or out of it",
      LIST("cp [FLAGS] FILE SANDBOX:PATH", "cp [FLAGS] SANDBOX:PATH FILE"),
      LIST("A PATH that does not begin with a slash starts at /workspace; one that ends with a slash is a directory that the file goes into under its own name, and so is a FILE that is a directory here. A FILE of - is standard input or output. A file appears under its name when it is whole.",
           "A FILE or PATH that is a directory is copied whole, by tar(1) on this side. Out of a sandbox it goes to a name that does not exist yet, without owners, setuid bits and devices; links in it are copied as they are, so look where they lead before you follow them. With --tar the archive itself comes or goes."),
      EXAMPLES({ "cove cp data.csv sbq7:", "into its /workspace" },
               { "cove cp src sbq7:", "a directory into it, as /workspace/src" },
               { "cove cp sbq7:plot.png .", "out of it" },
               { "cove cp sbq7: out", "all of /workspace out of it" }),
      false, "cove-ctl" },
    { VERB_LOGS, "logs", "print what an execution wrote",
      LIST("logs [FLAGS] SANDBOX [EXECUTION]"),
      LIST("Without an EXECUTION it is the newest one. What it wrote on standard error comes out on standard error. Why it was ended, or never started, is a remark there. Ended sandboxes have their output until the server forgets it.",
           "--receipt tells what the execution used, met and changed; every execution that ran to its end has one."),
      EXAMPLES({ "cove logs sbq7", "of the newest execution" }, { "cove logs -f sbq7", "and what is still to come" },
               { "cove logs --receipt sbq7", "what it used, and which calls were refused" }),
      false, "cove-ctl" },
    { VERB_WATCH, "watch", "tell what happens to files in a sandbox of a server",
      LIST("watch [FLAGS] SANDBOX [PATH]"),
      LIST("One line for each file that is created, modified, moved or removed in PATH (/workspace when none is given), until Ctrl-C, the end of the sandbox or the end of PATH. A PATH that is no directory is watched by its name, also when another file takes its place. Where more happens than can be told, a line says overflow: then look for yourself.",
           "Watching does not count as using: a sandbox in which nothing else happens becomes idle."),
      EXAMPLES({ "cove watch -r sbq7", "everything below /workspace" },
               { "cove watch --json sbq7 out", "one directory, for programs" }),
      false, "cove-ctl" },
    { VERB_EVENTS, "events", "tell what happens to the sandboxes of a server",
      LIST("events [FLAGS] [SANDBOX]"),
      LIST("One line for each: sandboxes that were created, paused, resumed, extended and ended, executions that started and ended. Without -f it is what the server remembers, the oldest first. With -f it is what happens from now on, until Ctrl-C; if the connection breaks it is taken up behind the last line, so that nothing is missed and nothing told twice.",
           "Every event has a number, which --json tells; --after begins behind it, also after a restart of the server."),
      EXAMPLES({ "cove events -f", "as it happens" },
               { "cove events -f --kind sandbox_ended --json", "for programs: only ends" },
               { "cove events sbq7", "all that happened to one" }),
      false, "cove-ctl" },
    { VERB_AUDIT, "audit", "what was done on a server, and proof that nobody changed the record",
      LIST("audit verify [--key FILE] [--head NUMBER:HASH] FILE|DIR...", "audit export [FLAGS]", "audit tail [-f] [FLAGS]", "audit key"),
      LIST("A server records every change, every execution and every refusal in files of JSON lines. Each record holds the hash of the one before it, and checkpoints are signed, so that a record that was changed, removed or moved is found by whoever has the files and the server's public key.",
           "verify needs no server. It reads the files in their order, or those of a directory, and says that they are intact, or names the first record that is not, by file and line, and why; then it ends with status 1. --key is the server's public key as `cove audit key` prints it: keep it on another machine. --head is a record that is known to have been written, from `cove audit key --json`: without it nobody can tell that the newest records were cut off.",
           "export prints the records that your key may see as they stand in the log; an operator's export of everything can be verified. tail prints the latest for people, and with -f those that follow."),
      EXAMPLES({ "cove audit key > audit.pub", "the public key, to be kept elsewhere" },
               { "cove audit verify --key audit.pub /var/lib/cove/state/audit", "is the log as it was written?" },
               { "cove audit export --since 24h > day.jsonl", "what was done since yesterday" },
               { "cove audit tail -f --action security.", "watch for security events" }),
      false, "cove-ctl", LIST("verify", "export", "tail", "key") },
    { VERB_USAGE, "usage", "tell what was used on a server",
      LIST("usage [FLAGS] [SANDBOX]"),
      LIST("Executions, processor time, the time that sandboxes were alive, the memory and storage that they were allowed for that time, and output: of the last day, or between --from and --to, in whole hours. --by tells it by hour, user, sandbox or tenant. What still lives is counted until now; usage of sandboxes that the server has forgotten is told by their users. docs/usage.md says how each figure is counted.",
           "It needs a key with the scope usage; with admin it is that of all tenants."),
      EXAMPLES({ "cove usage --from 7d --by user", "who used what in a week" },
               { "cove usage --from 2027-01-01 --to 2027-02-01 --by tenant,hour --csv", "a month for a spreadsheet" },
               { "cove usage sbq7", "of one sandbox" }),
      false, "cove-ctl" },
    { VERB_BUDGET, "budget", "bound what a tenant may use in a day or a month",
      LIST("budget get [FLAGS] [TENANT]", "budget set [FLAGS] TENANT", "budget clear [FLAGS] TENANT"),
      LIST("Work beyond a budget is refused with budget_exceeded until the day or the month is over, and what runs is stopped within two seconds. set changes the bounds that it names and leaves the others; clear takes away those of one period, or all. It counts what was used since the beginning of the period, also before the budget was set.",
           "set and clear are for the operator: they need a key with the scope admin, or you to be the server's owner on the same machine. get needs the scope usage, and without a TENANT it tells everybody about their own. docs/usage.md says how each figure is counted."),
      EXAMPLES({ "cove budget set --cpu 10h --executions 5000 acme", "what acme may use in a day" },
               { "cove budget set --per month --alive 60d acme", "and in a month" },
               { "cove budget get acme", "how much of it is left" },
               { "cove budget clear acme", "no bounds any more" }),
      false, "cove-ctl", LIST("get", "set", "clear") },
    { VERB_TOP, "top", "watch what the sandboxes of a server use",
      LIST("top [FLAGS]"),
      LIST("Every sandbox that lives, with its share of a processor, its memory and what it may have of it, its processes and executions; drawn anew every two seconds, until Ctrl-C. Where standard output is no terminal it is printed once. Looking keeps no sandbox from being idle."),
      EXAMPLES({ "cove top --sort memory", "the largest first" },
               { "cove top --once --json", "one look, for programs" }),
      false, "cove-ctl" },
    { VERB_PS, "ps", "list the executions of a server",
      LIST("ps [FLAGS] [SANDBOX]"),
      LIST("Those that run now in every sandbox, or in one."),
      EXAMPLES({ "cove ps", "what runs" }, { "cove ps -a sbq7", "and what ran" }),
      false, "cove-ctl" },
    { VERB_KEY, "key", "make and revoke API keys of a server",
      LIST("key create [FLAGS] NAME", "key ls [FLAGS]", "key revoke ID|NAME", "key rotate ID|NAME"),
      LIST("A key is shown when it is made and never again. Nobody can make one that may do more than they may themselves. rotate replaces the secret and keeps everything else. For both the name is enough if only one key has it, and so is the beginning of the ID.",
           "Scopes: sandboxes:read, sandboxes:write, executions, executions:read, files, files:read, keys, metrics, tenant, audit, usage, pools:write, and admin, which is everything, for what every tenant has."),
      EXAMPLES({ "cove key create --scope sandboxes:read --scope metrics grafana", "one that only looks" },
               { "cove key create --expires 30d ci", "one that ends by itself" },
               { "cove key ls", "who has one" }),
      false, "cove-ctl", LIST("create", "ls", "revoke", "rotate") },
    { VERB_POOL, "pool", "keep sandboxes ready before they are asked for",
      LIST("pool ls [FLAGS]", "pool info NAME", "pool set [FLAGS] NAME", "pool rm NAME"),
      LIST("A warm pool holds sandboxes of one template that are made already, with the interpreter in them where the template has one. A sandbox of that template then costs what handing it over costs; when the pool is empty it is made as always. Everybody finds them, and each is used once, unless the pool was told to --recycle.",
           "A pool holds as many as the claims of late ask for, from --min to --max: enough that --hit-rate of them find one. set makes a pool, or changes of one what is named; making one needs --template. set and rm need a key with the scope pools:write, or you to be the server's owner on the same machine."),
      EXAMPLES({ "cove pool set --template python-data --min 2 --max 20 data", "make one" },
               { "cove pool ls", "how they are doing" },
               { "cove pool set --max 50 data", "let it grow further" }),
      false, "cove-ctl", LIST("ls", "info", "set", "rm") },
    { VERB_TENANT, "tenant", "share a server between teams that do not see each other",
      LIST("tenant create [FLAGS] NAME", "tenant ls [FLAGS]", "tenant info [NAME]", "tenant set [FLAGS] NAME", "tenant rm NAME"),
      LIST("What a key makes belongs to its tenant, and keys of others find nothing of it. A quota bounds what all sandboxes of a tenant have together; what it has already stays when the quota becomes smaller. It is for the operator: it needs a key with the scope admin, or you to be the server's owner on the same machine. info without a NAME tells everybody about their own.",
           "A tenant that is suspended is refused everything, and its sandboxes are ended. rm ends them too, revokes its keys and removes its users and roles; the name is not used again."),
      EXAMPLES({ "cove tenant create --sandboxes 20 --memory 16G acme", "one with bounds" },
               { "cove tenant info acme", "what it uses of them" },
               { "cove tenant set --suspend acme", "stop it at once" }),
      false, "cove-ctl", LIST("create", "ls", "info", "set", "rm") },
    { VERB_USER, "user", "people of a tenant, and what they may do",
      LIST("user add [FLAGS] NAME", "user ls [FLAGS]", "user info ID|NAME", "user set [FLAGS] ID|NAME", "user rm ID|NAME"),
      LIST("What a user may do is what their role allows and the scopes of their key name, both. A change holds from their next request on, and what they have open ends. Nobody can give a role that allows more than they may themselves, and the last admin of a tenant stays one.",
           "admin may do everything in the tenant, developer everything but users, roles and the keys of others, viewer only look. It needs a key with the scope tenant."),
      EXAMPLES({ "cove user add --role developer anna", "a new one" },
               { "cove key create --user anna laptop", "a key for them" },
               { "cove user set --disable anna", "shut the door at once" }),
      false, "cove-ctl", LIST("add", "ls", "info", "set", "rm") },
    { VERB_ROLE, "role", "roles of a tenant's own",
      LIST("role create --allow PERMISSION... NAME", "role ls [FLAGS]", "role show NAME", "role rm NAME"),
      LIST("A role is a list of permissions, which have the names of the scopes of keys. It does not change: make another, give it to its users and remove the first. It needs a key with the scope tenant."),
      EXAMPLES({ "cove role create --allow sandboxes:read --allow executions runner", "may run programs, and nothing else" },
               { "cove role show developer", "what one allows" }),
      false, "cove-ctl", LIST("create", "ls", "show", "rm") },
    { VERB_TOKEN, "token", "hand on a part of your rights: tokens, signed URLs, tickets",
      LIST("token create [FLAGS] SANDBOX", "token url [FLAGS] SANDBOX:PATH", "token ticket [FLAGS] PATH", "token revoke --all"),
      LIST("create makes a token for one sandbox, to be used as a key is: for a program or a person that shall reach this sandbox and nothing else. url makes a URL by which anybody can read one file, or write it with --put, without a key. Both end by themselves, with their sandbox, and with the key that made them; nobody can hand on more than they have.",
           "ticket makes a word for one request within a minute, as ?ticket= in its URL, for browsers, which cannot send a key with every request. revoke --all ends all tokens and signed URLs of the server at once; it needs the scope admin."),
      EXAMPLES({ "cove token create --ttl 10m sbq7", "run code and use files in this sandbox, for ten minutes" },
               { "cove token create --scope files sbq7", "only its files" },
               { "cove token url sbq7:plot.png", "a link to a file" },
               { "curl -T data.csv \"$(cove token url --put sbq7:data.csv)\"", "let somebody without a key bring one" }),
      false, "cove-ctl", LIST("create", "url", "ticket", "revoke") },
    { VERB_LOGIN, "login", "choose a server and remember a key for it",
      LIST("login [FLAGS] [URL]"),
      LIST("Reads a key from standard input (typed, it is not shown), tries it at the server, and keeps both in ~/.config/cove/login.json, which nobody else can read. From then on every verb that needs a server uses it; --url, COVE_URL and COVE_API_KEY go before it. --cacert is kept too, by its path. Without a URL it is COVE_URL, or the server at http://127.0.0.1:8700.",
           "With --device there is no key: the server names its identity provider, cove shows a page and a code, and whoever opens the page in a browser, on any machine, enters the code and logs in there. The token that comes back is kept, and renewed when it ends, for as long as the provider allows."),
      EXAMPLES({ "cove login https://cove.example.org", "and type the key" },
               { "cove login https://cove.example.org < key.txt", "from a file" },
               { "cove login --cacert ca.pem https://cove.example.org", "a server with an authority of your own" },
               { "cove login --device https://cove.example.org", "in a browser, at the provider" }),
      false, "cove-ctl" },
    { VERB_LOGOUT, "logout", "forget the server and its key",
      LIST("logout [FLAGS]"),
      LIST("Removes what `cove login` kept. The key stays good: `cove key revoke` ends it."),
      EXAMPLES({ "cove logout", "forget it" }),
      false, "cove-ctl" },
    { VERB_WHOAMI, "whoami", "say which server is used, as whom, and what you may do there",
      LIST("whoami [FLAGS]"),
      LIST("Asks the server what it knows about whoever asks: the tenant, the key or token, its scopes and its end."),
      EXAMPLES({ "cove whoami", "who am I" }),
      false, "cove-ctl" },
    { VERB_GC, "gc", "remove what a server need not remember any more",
      LIST("gc [FLAGS]"),
      LIST("Has the server remove executions, tombstones of sandboxes, events and output that are older than its settings under `retention` keep them, and output files that belong to no execution. A server does the first by itself every hour. What is alive is never touched. It needs a key with the scope admin, or to be the server's owner on the same machine."),
      EXAMPLES({ "cove gc --dry-run", "what would be removed" }),
      false, "cove-ctl" },
    { VERB_BACKUP, "backup", "copy a server's database into a file",
      LIST("backup [FLAGS] FILE"),
      LIST("A server that runs is asked for the copy and goes on working; it needs a key with the scope admin, or you to be its owner on the same machine. Where none runs, the database is read directly. FILE must not exist yet; - is standard output. It holds everything that the server remembers but the output of executions: whoever can read it knows all records, and the hashes of keys."),
      EXAMPLES({ "cove backup cove-$(date +%F).db", "from the server of this machine" },
               { "cove backup --state-dir /srv/cove copy.db", "from the one that lives there" }),
      false, "cove-store" },
    { VERB_RESTORE, "restore", "put a backup in the place of a server's database",
      LIST("restore [FLAGS] FILE"),
      LIST("The server must be stopped. FILE is checked whole before anything is changed, and the database that was there is kept beside it, with .before-restore at the end of its name. When the server is started again, sandboxes that the backup takes for alive are told as lost. Keys are again what they were: those that were revoked since the backup have to be revoked again."),
      EXAMPLES({ "cove restore cove-2027-01-31.db", "for the server of this machine" }),
      false, "cove-store" },
    { VERB_POLICY, "policy", "check, show, compare and import policies",
      LIST("policy check FILE", "policy show [NAME|FILE]", "policy diff A B", "policy import SETTINGS.json"),
      LIST("A policy says all that can be decided about a sandbox before its program is known: files, network, system calls, limits, environment. Some are built in (show without a name lists them); a file in YAML or JSON extends one of them. Names and values are those of docs/policies.md; a key that does not exist is an error.",
           "check reads a file and reports every error with line, cause and fix. show prints a policy complete, with the source of each value. diff prints what differs between two, and ends with status 1 if anything does. import reads settings of sandbox-runtime, prints a policy, and says line by line on standard error what became of each.",
           "An operator's floor in /etc/cove/floor.yaml holds for every policy and every flag: what asks for more is refused, and what nobody chose is lowered to it. The variable COVE_FLOOR may name one more file, which can only narrow further."),
      EXAMPLES({ "cove policy show debug", "a built-in policy, complete" },
               { "cove policy check build.yaml", "every error at its line" },
               { "cove policy diff standard build.yaml", "what a file changes" },
               { "cove policy import ~/.srt-settings.json > policy.yaml", "settings of sandbox-runtime" }),
      false, "cove-policy", LIST("check", "show", "diff", "import") },
    { VERB_DOCTOR, "doctor", "attack a sandbox on this host and say what held",
      LIST("doctor [FLAGS]"),
      LIST("Starts real sandboxes with small limits and attacks them from inside, as code that wants to get out would. Prints one line for each wall and each limit: held, partial or open, and what was tried; where something is missing, what was seen and how to get it. The last line is the verdict. It takes about a second and harms nothing.",
           "The exit status is for scripts. 0: level standard is complete on this host. 1: a wall is open, or a limit that cove calls enforced was broken. 3: something can be had in part only here, as for a plain user, and all else held. Where no sandbox can be made at all, the error is the one of `cove run`, with status 125."),
      EXAMPLES({ "cove doctor", "what holds on this host" },
               { "cove doctor --json", "the same for programs" }),
      false },
    { VERB_RUNTIMES, "runtimes", "list the language runtimes found on this host",
      LIST("runtimes [FLAGS]"),
      LIST("Lists the runtimes that --runtime and scripts can use, with the program that each one starts. Runtimes are found in /usr/local/bin, /usr/bin and /bin, because these are the directories that a sandbox sees; one that is a link to another place is named with the reason why it cannot be used. A built-in template of `cove serve` whose Python modules are missing on this host is listed with the command that installs them."),
      EXAMPLES({ "cove runtimes", "one line for each" }),
      false },
    { VERB_EXPLAIN, "explain", "say in plain words what a receipt says",
      LIST("explain [FLAGS] FILE", "explain [FLAGS] -"),
      LIST("Reads a receipt that `cove run --receipt=FILE` wrote, or the object that `cove run --json` printed, and says why the program ended, what it used, what it was refused and why, which limits it met, and what is not known. With - it reads standard input. Nothing is started."),
      EXAMPLES({ "cove explain receipt.json", "explain a receipt" },
               { "cove run --json -- mount | cove explain -", "run something and hear what became of it" }),
      false },
    { VERB_ERRORS, "errors", "explain an error code",
      LIST("errors [FLAGS] [CODE]"),
      LIST("Every error that cove reports carries a code that does not change between versions. This prints what the code means, what to do, and the exit status that goes with it; without a CODE, all of them."),
      EXAMPLES({ "cove errors program_not_found", "explain one code" }),
      false },
    { VERB_COMPLETION, "completion", "print a completion script for a shell",
      LIST("completion bash|zsh|fish"),
      LIST("Prints a script that teaches the shell the verbs and flags of this version of cove."),
      EXAMPLES({ "cove completion bash > /etc/bash_completion.d/cove", "for bash" },
               { "cove completion zsh > /usr/local/share/zsh/site-functions/_cove", "for zsh" },
               { "cove completion fish > ~/.config/fish/completions/cove.fish", "for fish" }),
      false },
    { VERB_HELP, "help", "show help for cove or for one verb",
      LIST("help [VERB]"), LIST("Shows the list of verbs, or all there is to know about one."),
      EXAMPLES({ "cove help run", "all about run" }), false },
    { VERB_VERSION, "version", "print the version",
      LIST("version", "--version"), LIST("Prints the version of cove."),
      EXAMPLES({ "cove version", "which cove is this" }), false },
};

static const struct cli_exit cli_exit_table[] = {
    { "0-122", "the program's own status; the ranges below have a meaning of their own" },
    { "123", "the memory limit ended the program" },
    { "124", "a clock ended the program: --timeout, --cpu-time or --lifetime" },
    { "125", "cove itself refused or failed; the message has a code, a cause and a fix" },
    { "126", "the program exists but cannot be executed" },
    { "127", "the program or its runtime was not found" },
    { "128+N", "signal N ended the program" },
    { "2", "the command line is wrong" },
    { NULL, NULL },
};

static const char *const cli_group_titles[GROUP_COUNT] = {
    [GROUP_PROGRAM] = "What to run",      [GROUP_FILES] = "Files",
    [GROUP_WALLS] = "Walls",              [GROUP_LIMITS] = "Limits",
    [GROUP_STREAMS] = "Terminal and input", [GROUP_RESULT] = "Result",
    [GROUP_LIFE] = "Other",
};
/* clang-format on */

const struct cli_verb *cli_verbs(size_t *count)
{
    *count = ARRAY_LEN(cli_verb_table);
    return cli_verb_table;
}

const struct cli_verb *cli_verb_find(const char *name)
{
    for (size_t i = 0; i < ARRAY_LEN(cli_verb_table); i++)
        if (str_eq(cli_verb_table[i].name, name))
            return &cli_verb_table[i];
    return NULL;
}

const struct cli_option *cli_option_next(const struct cli_verb *v, const struct cli_option *prev)
{
    for (const struct cli_option *o = prev ? prev + 1 : cli_option_table;
         o < cli_option_table + ARRAY_LEN(cli_option_table); o++)
        if (o->verb == v->id && o->name)
            return o;
    return NULL;
}

const struct cli_option *cli_option_shown(const struct cli_verb *v, const struct cli_option *prev)
{
    const struct cli_option *o = prev;

    for (int g = prev ? (int)prev->group : 0; g < GROUP_COUNT; g++, o = NULL)
        while ((o = cli_option_next(v, o)))
            if (o->group == (enum opt_group)g)
                return o;
    return NULL;
}

const struct cli_option *cli_option_find(const struct cli_verb *v, const char *name, size_t len)
{
    for (const struct cli_option *o = NULL; (o = cli_option_next(v, o));)
        if (strlen(o->name) == len && memcmp(o->name, name, len) == 0)
            return o;
    return NULL;
}

const struct cli_option *cli_option_letter(const struct cli_verb *v, char letter)
{
    for (const struct cli_option *o = NULL; (o = cli_option_next(v, o));)
        if (o->letter && o->letter == letter)
            return o;
    return NULL;
}

const char *cli_group_title(enum opt_group g)
{
    return cli_group_titles[g];
}

bool cli_arg_optional(const struct cli_option *o)
{
    return o->arg && o->arg[0] == '[';
}

const char *cli_option_default(const struct cli_option *o, char buf[LIMIT_TEXT])
{
    if (o->id < OPT_LIMIT)
        return o->dflt;
    enum limit l = (enum limit)(o->id - OPT_LIMIT);
    limit_print(l, limit_info(l)->dflt, buf);
    const char *more = o->verb != VERB_RUN   ? ""
                       : l == LIMIT_WALL     ? ", with --tty 1h"
                       : l == LIMIT_LIFETIME ? ", or as long as the run needs"
                       : l == LIMIT_OUTPUT   ? " with --json, else unlimited"
                                             : "";
    snprintf(buf + strlen(buf), LIMIT_TEXT - strlen(buf), "%s", more);
    return buf;
}

const struct cli_exit *cli_exits(void)
{
    return cli_exit_table;
}

const char *const *cli_completion_values(enum opt_complete c)
{
    static const char *const runtimes[] = { "python", "node", "bash", "sh", NULL };
    static const char *const levels[] = { "standard", "high", NULL };
    static const char *const policies[] = { "standard", "debug", NULL };
    static const char *const nets[] = { "none", NULL };
    static const char *const none[] = { NULL };

    switch (c) {
    case COMPLETE_RUNTIME:
        return runtimes;
    case COMPLETE_POLICY:
        return policies;
    case COMPLETE_LEVEL:
        return levels;
    case COMPLETE_NET:
        return nets;
    default:
        return none;
    }
}
