/* All options are in one array with the verb as a column; a linear scan finds the options of a
 * verb. The preprocessor takes the limits from policy/limits.def, so a limit with a flag there has
 * the flag here, in the help and in the manual. A limit without a flag is a row without a name,
 * which the scan skips. */
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
    { VERB_RUN, "run", "run a program in a new sandbox on this host, without a server",
      LIST("run [FLAGS] [--] PROGRAM [ARGUMENT...]",
           "run [FLAGS] SCRIPT [ARGUMENT...]",
           "run [FLAGS] (-c CODE | -) [ARGUMENT...]"),
      LIST("Runs one program in a new sandbox and removes the sandbox afterwards. The sandbox has its own namespaces, a read-only view of the system, no network except what --allow names, no privileges, a short list of permitted system calls, and limits on memory, processors, processes, files and time. A wall that this host cannot raise is an error; cove never runs code with weaker isolation than requested.",
           "The argument after -- is a program inside the sandbox; the host's /usr, /bin and /lib are mounted there read-only. Without --, a name that is a file of yours is run as a script: its extension (.py .js .mjs .cjs .sh .bash) or its #! line selects the runtime, and the sandbox sees only this file, at /mnt/script. A script below the directory of --workspace is run from /workspace instead, next to the other files there. Flags of cove come before the program; all later arguments belong to the program.",
           "The program starts in /workspace, which is empty without --workspace, and inherits none of your environment variables. Output is streamed. Piped input is sent to the program; input from a terminal is sent only with -i or -t. Ctrl-C interrupts the program; press it again to kill the program. If the reader of the output is slow, the program is slowed down (back-pressure); no output is lost."),
      EXAMPLES({ "cove run -- ls -l /", "look around in a sandbox" },
               { "cove run -c 'print(1)'", "run a line of Python" },
               { "cove run script.py a b", "run a script with arguments" },
               { "echo 'console.log(1)' | cove run --runtime js -", "run code from a pipe" },
               { "cove run --workspace .:cow -- make", "try a build on your files without changing them" },
               { "cove run --memory 64M --timeout 2s -- ./prog", "set tighter limits" },
               { "cove run --json -c 'print(1)'", "print one JSON object, for programs" },
               { "cove run -t -- bash", "start a shell and test the walls from inside" },
               { "cove run --policy debug -- strace -f true", "permit programs to trace each other" },
               { "cove run --dry-run -- true", "show what would be enforced" }),
      true },
    { VERB_LS, "ls", "list the sandboxes of the server and of this host",
      LIST("ls [FLAGS]"),
      LIST("Lists the live sandboxes of the server, and those that `cove run --keep` left on this host, whose state is kept. If the server does not answer, the kept ones are listed and a note says so. `cove sandbox ls` lists those of the server alone and can filter them."),
      EXAMPLES({ "cove ls", "print one line per sandbox" },
               { "cove ls -a", "include sandboxes that have ended" },
               { "cove ls -q --local", "print only the IDs of kept sandboxes" }),
      false, "cove-ctl" },
    { VERB_SHELL, "shell", "open a terminal in a sandbox",
      LIST("shell [FLAGS] SANDBOX [--] [COMMAND [ARGUMENT...]]"),
      LIST("Starts bash, or sh if the sandbox has no bash, or the given command, in a sandbox of the server or in one that `cove run --keep` left on this host. The program has a terminal if standard input and output are terminals; otherwise standard input is sent to it. A unique prefix of the ID is enough.",
           "On a server, Ctrl-P Ctrl-Q detaches from the terminal and leaves the program running; `cove attach` returns to it. A kept sandbox is thawed for the command and frozen again afterwards."),
      EXAMPLES({ "cove shell sbq7", "start a shell" },
               { "cove shell sbq7 -- htop", "start another program on a terminal" },
               { "echo 'ls -l' | cove shell sbq7", "run a script of the shell" }),
      true, "cove-ctl" },
    { VERB_RM, "rm", "end sandboxes",
      LIST("rm [FLAGS] ID...", "rm --all [--yes]"),
      LIST("Ends sandboxes of the server, and those that `cove run --keep` left on this host: every process of the sandbox is killed, and its files are removed. A unique prefix of the ID is enough. --all asks first."),
      EXAMPLES({ "cove rm sbq7", "end one sandbox" },
               { "cove rm --all", "end all sandboxes" },
               { "cove rm --all --local --yes", "end all kept sandboxes of this host without a question" }),
      false, "cove-ctl" },
    { VERB_SERVE, "serve", "run the server: sandboxes over HTTP",
      LIST("serve [--config FILE] [SETTINGS]", "serve --print-config [--json]"),
      LIST("Starts the server and keeps it running: the jailer, which makes sandboxes; the monitor, which counts denied system calls; and coved, which answers requests as its own user without privileges. A process that dies is restarted; sandboxes survive a restart of coved. The server listens on 127.0.0.1:8700 and on a Unix socket. The first start prints an API key; it won't be shown again.",
           "Settings come from /etc/cove/cove.yaml or the file of --config, then from COVE_* variables, then from flags; later sources override earlier ones. `cove serve --help` lists the settings with their defaults, and docs/configuration.md explains them. An unknown setting is an error that suggests the nearest name. --print-config prints all settings with their sources.",
           "Ctrl-C or SIGTERM stops the server: open requests have drainTimeout to finish, then every sandbox is ended. The units in deploy/systemd run the same processes under systemd."),
      EXAMPLES({ "cove serve", "start with the defaults" },
               { "cove serve --listen 0.0.0.0:8700 --allowed-hosts cove.example.org", "accept requests from other machines" },
               { "cove serve --state-dir /srv/cove", "keep all files below another directory" },
               { "cove serve --print-config", "show each setting and its source" }),
      false, "cove-serve" },
    { VERB_SANDBOX, "sandbox", "create, list and end sandboxes on a server",
      LIST("sandbox create [FLAGS]", "sandbox ls [FLAGS]", "sandbox info|rm|pause|resume ID...", "sandbox rm --all [--yes]", "sandbox set|update [FLAGS] ID...", "sandbox connections ID"),
      LIST("A sandbox lives until it is removed, its lifetime is over or its idle time is over. create prints its ID; the other commands also accept its name (--name) or a unique prefix of an ID. ls lists the live ones; with -a also those that have ended, with the reason, until the server removes their records. set (or update) changes what its flags name.",
           "A sandbox has no network unless --allow names hosts; docs/network.md describes the targets. The first --allow or --deny that matches a host decides. A sandbox that was created with --allow or --net egress can be changed while it lives: set --allow replaces all of its rules at once, and set --net none removes them. connections lists the open connections, and `cove policy why` explains why a URL is allowed or refused.",
           "The server is given by --url or COVE_URL, the API key by COVE_API_KEY and, for https, the certificate authority by COVE_CACERT. Without them, the server of `cove login` is used, or the server on this machine, which recognizes its owner without a key."),
      EXAMPLES({ "cove sandbox create --lifetime 1h -m task=42", "create a sandbox and print its ID" },
               { "cove sandbox create --name build", "create a sandbox with a name" },
               { "cove sandbox set build --lifetime 1h -m task=43", "change a sandbox" },
               { "cove sandbox create --allow pypi.org --allow '*.example.org:443'", "permit requests to these hosts only" },
               { "cove sandbox update --allow preset:pypi build", "permit other hosts from now on" },
               { "cove sandbox ls --state running", "list running sandboxes" },
               { "cove sandbox rm sbq7", "end a sandbox" }),
      false, "cove-ctl", LIST("create", "ls", "info", "rm", "pause", "resume", "set", "update", "connections") },
    { VERB_EXEC, "exec", "run a command or code in a sandbox on a server",
      LIST("exec [FLAGS] SANDBOX [--] COMMAND...", "exec [FLAGS] SANDBOX -c CODE", "exec [FLAGS] SANDBOX FILE|-", "exec -t [FLAGS] SANDBOX [COMMAND...]"),
      LIST("Output is streamed, and the exit status is that of the program. Standard input is streamed to a command; input from a terminal is sent only with -i. Code reads it only with -i. A FILE of this host with the extension of a language is sent as code; - is code on standard input. Ctrl-C ends the execution. If the connection breaks, the execution continues, and cove reconnects and resumes its output without a gap."),
      EXAMPLES({ "cove exec sbq7 -- ls -l", "run a command" },
               { "cove exec sbq7 -c 'print(6 * 7)'", "run code in the sandbox's language" },
               { "cove exec -it sbq7", "start a shell in a terminal" },
               { "cove exec -d sbq7 -- ./server", "start a program in the background" }),
      true, "cove-ctl" },
    { VERB_EXECUTE, "execute", "run code once in a fresh sandbox on a server",
      LIST("execute [FLAGS] -c CODE", "execute [FLAGS] FILE|-", "execute [FLAGS] -- COMMAND..."),
      LIST("Runs one program in a sandbox that no other request has used. Afterwards the server keeps only the record of the execution and its usage. For code, cove prints its output, displayed results, the value of its last expression and the traceback of an exception; an exception gives status 1. Code that exits itself (exit, sys.exit) sets its own status. The extension of FILE selects the language; - is code on standard input. With -i standard input is read to its end and sent to the program; it is not read otherwise.",
           "--file copies files into the sandbox. --output copies files back, to the same relative path below the directory of --save or below the current directory. Ctrl-C ends the execution."),
      EXAMPLES({ "cove execute -c '6 * 7'", "run Python code" },
               { "cove execute --file data.csv --output 'plots/*.png' analyse.py", "run a script with its data and copy the pictures back" },
               { "cove execute --template python-data --save plots plot.py", "run with NumPy, pandas and matplotlib imported and save displayed pictures" },
               { "cove execute --runtime bash -c 'uname -a'", "use another language" },
               { "cove execute --json -c '[1, 2]'", "print the complete answer, for programs" },
               { "cove execute -- ls -l /", "run a command" }),
      true, "cove-ctl" },
    { VERB_VALIDATE, "validate", "check code on a server without running it",
      LIST("validate [FLAGS] -c CODE", "validate [FLAGS] FILE|-"),
      LIST("Reports what Python code would use that the tier simple of `cove execute --tier simple` does not give it, with a safe alternative. Of node and bash code only the syntax is checked. Nothing of the code runs. The check reports early; the walls of the sandbox are the boundary.",
           "The exit status is 0 if the tier simple runs the code, and 1 if it refuses it; for node and bash, 1 if the syntax is wrong."),
      EXAMPLES({ "cove validate -c 'import os'", "check a line of Python" },
               { "cove validate --json script.py", "print the whole report, for programs" },
               { "cove validate --runtime bash deploy.sh", "check the syntax of a shell script" }),
      false, "cove-ctl" },
    { VERB_CONTEXT, "context", "run code in interpreters that keep their state",
      LIST("context create [FLAGS] SANDBOX", "context ls SANDBOX", "context exec [FLAGS] SANDBOX [CONTEXT]", "context interrupt|restart|fork|rm SANDBOX [CONTEXT]"),
      LIST("A context is an interpreter in a sandbox: variables that one exec defines are there for the next. create prints its ID; the other commands also accept a unique prefix of an ID, and no ID if the sandbox has only one context.",
           "exec takes code from -c or standard input; on a terminal it runs what you type, cell by cell, until Ctrl-D: a line that opens a block or a bracket is continued up to an empty line. It prints its output, displayed results, the value of its last expression and the traceback of an exception; an exception gives status 1. Code that reads a line of input reads it from your terminal. Ctrl-C interrupts the code and keeps the variables; code that ignores the interrupt is killed, and the interpreter restarts without variables. --save writes pictures to files.",
           "fork copies a context with its variables and imported modules in a few milliseconds and prints the ID of the copy; afterwards the two are independent. The context must be a Python context that is idle and has started no threads."),
      EXAMPLES({ "cove context create sbq7", "create a Python interpreter in this sandbox" },
               { "cove context exec sbq7 -c 'x = 6 * 7'", "set a variable" },
               { "cove context exec sbq7 -c x", "print it" },
               { "cove context exec sbq7", "type code, as in a Python shell" },
               { "cove context fork sbq7", "copy the context with its variables" },
               { "cove context exec --save plots sbq7 < plot.py", "save displayed pictures" }),
      false, "cove-ctl", LIST("create", "ls", "exec", "interrupt", "restart", "fork", "rm") },
    { VERB_ATTACH, "attach", "attach to a terminal in a sandbox on a server",
      LIST("attach [FLAGS] SANDBOX [EXECUTION]"),
      LIST("Attaches to a running terminal that `cove exec -t` or the REST interface opened; without EXECUTION, to the only terminal of the sandbox. The most recent output is printed first. Several viewers may attach at the same time: all see the same output, all may type, and the terminal has the size of the viewer that attached or resized last. Ctrl-P Ctrl-Q detaches and leaves the terminal running. If the connection breaks or the server restarts, cove reconnects and resumes without a gap. The exit status is that of the program.",
           "The program in the sandbox can write any escape sequence to your terminal: attach only to programs that you trust to do so."),
      EXAMPLES({ "cove attach sbq7", "attach to the only terminal of a sandbox" }),
      true, "cove-ctl" },
    { VERB_CP, "cp", "copy files to and from a sandbox on a server",
      LIST("cp [FLAGS] FILE SANDBOX:PATH", "cp [FLAGS] SANDBOX:PATH FILE"),
      LIST("A PATH without a leading slash is relative to /workspace. If the destination ends with a slash or is a local directory, the file is copied into it under its own name. A FILE of - is standard input or output. A file appears under its name only when it is complete.",
           "Directories are copied recursively; the local tar(1) packs and unpacks them. A directory from a sandbox is copied to a name that must not exist yet, without owners, setuid bits and devices. Symbolic links are copied unchanged: check their targets before you follow them. --tar copies the archive itself."),
      EXAMPLES({ "cove cp data.csv sbq7:", "copy a file into /workspace" },
               { "cove cp src sbq7:", "copy a directory to /workspace/src" },
               { "cove cp sbq7:plot.png .", "copy a file from the sandbox" },
               { "cove cp sbq7: out", "copy all of /workspace from the sandbox" }),
      false, "cove-ctl" },
    { VERB_FILES, "files", "list, read and change files in a sandbox",
      LIST("files ls SANDBOX[:PATH]", "files cat SANDBOX:PATH...", "files stat SANDBOX:PATH", "files mkdir SANDBOX:PATH...", "files mv SANDBOX:FROM TO", "files rm [-r] SANDBOX:PATH..."),
      LIST("Works on the files of a sandbox on the server without starting a program in it. A relative path starts at /workspace. The sandbox and the path may also be two arguments: SANDBOX PATH. mkdir and mv create missing parent directories. `cove cp` copies files to and from a sandbox, `cove watch` reports changes.",
           "A key with the scope files:read may use ls, cat and stat; the others need the scope files."),
      EXAMPLES({ "cove files ls sbq7", "list /workspace" },
               { "cove files cat sbq7:out/result.json", "print a file" },
               { "cove files mv sbq7:draft.txt old/draft.txt", "rename a file" },
               { "cove files rm -r sbq7:out", "remove a directory with its contents" }),
      false, "cove-ctl", LIST("ls", "cat", "stat", "mkdir", "mv", "rm") },
    { VERB_LOGS, "logs", "print the output of an execution",
      LIST("logs [FLAGS] SANDBOX [EXECUTION]"),
      LIST("Prints the output of EXECUTION, by default the newest execution of the sandbox. Its standard error is printed on standard error, followed by a note if the execution was ended or never started. The output of ended sandboxes is available until the server removes it.",
           "--receipt explains the receipt: what the execution used, which limits it hit, which operations were denied and which files it changed. Every completed execution has a receipt."),
      EXAMPLES({ "cove logs sbq7", "print the output of the newest execution" }, { "cove logs -f sbq7", "print the output as it is written" },
               { "cove logs --receipt sbq7", "show usage and denied system calls" }),
      false, "cove-ctl" },
    { VERB_WATCH, "watch", "stream file changes in a sandbox on a server",
      LIST("watch [FLAGS] SANDBOX [PATH]"),
      LIST("Prints one line for each file that is created, modified, moved or removed in PATH (default: /workspace), until Ctrl-C, the end of the sandbox or the removal of PATH. A PATH that is a file is watched by its name, also after it is replaced by another file. A line 'overflow' means that changes were dropped: list the directory again.",
           "Watching does not keep a sandbox from becoming idle."),
      EXAMPLES({ "cove watch -r sbq7", "watch everything below /workspace" },
               { "cove watch --json sbq7 out", "watch one directory and print JSON" }),
      false, "cove-ctl" },
    { VERB_EVENTS, "events", "stream sandbox events of a server",
      LIST("events [FLAGS] [SANDBOX]"),
      LIST("Prints one line per event: a sandbox was created, paused, resumed, changed or ended, an execution started or ended. Without -f, prints the events that the server keeps, oldest first. With -f, prints new events until Ctrl-C; if the connection breaks, cove reconnects and resumes after the last event, so no event is lost or printed twice.",
           "Every event has a number, which --json prints. --after resumes after that number, also after a restart of the server."),
      EXAMPLES({ "cove events -f", "stream events" },
               { "cove events -f --kind sandbox_ended --json", "stream only ends of sandboxes, as JSON" },
               { "cove events sbq7", "print the events of one sandbox" }),
      false, "cove-ctl" },
    { VERB_MCP, "mcp", "connect an MCP client to a server",
      LIST("mcp [FLAGS]", "mcp sessions ls|show|rm [FLAGS] [SESSION]", "mcp config [FLAGS] CLIENT",
           "mcp tools [FLAGS] [-- COMMAND [ARGS...]]", "mcp call [FLAGS] TOOL [JSON] [-- COMMAND [ARGS...]]", "mcp read [FLAGS] [URI] [-- COMMAND [ARGS...]]"),
      LIST("Without a command, carries messages of the Model Context Protocol between standard input and output, one per line, and the endpoint /mcp of a server. MCP clients such as Claude Code, Cursor and VS Code start it; the tools of the server then run code and commands and handle files in a sandbox. All calls share one sandbox, which is created by the first call and removed when the input ends.",
           "--local starts a server for this client alone: it listens on a Unix socket only, its state is temporary, and it ends with the client. Without it, the server is the one that the other verbs use. The sandbox has no network: with --local, --allow names hosts that it may reach; on another server, --template names a template with a network ('cove template set --allow HOST NAME').",
           "sessions lists, shows and closes the sessions of MCP clients on the server; closing one removes its sandbox. config prints the configuration of an MCP client (claude-code, cursor or vscode) that starts the bridge with the same flags.",
           "tools, call and read are a client of other MCP servers: an address (--server-url), a program after --, or all servers of a file (--config). A program runs in a sandbox without a network, unless --unsandboxed is given. With several servers, a tool is named SERVER__TOOL. read without URI lists the resources of the server."),
      EXAMPLES({ "cove mcp --local", "serve one MCP client without any set-up" },
               { "cove mcp config claude-code --local", "print the configuration of Claude Code for that" },
               { "cove mcp --local --allow preset:pypi", "let the sandbox install packages of Python" },
               { "cove mcp --template python-data", "use a server that runs, and choose the sandbox" },
               { "cove mcp sessions ls", "list the MCP clients of the server and their sandboxes" },
               { "cove mcp tools -- python3 server.py", "list the tools of an MCP server that runs in a sandbox" },
               { "cove mcp call --server-url http://127.0.0.1:3000/mcp add -a a=2 -a b=3", "call a tool of a server" }),
      false, "cove-ctl", LIST("call", "config", "read", "sessions", "tools"), true },
    { VERB_AUDIT, "audit", "read and verify the audit trail of a server",
      LIST("audit verify [--key FILE] [--head NUMBER:HASH] FILE|DIR...", "audit export [FLAGS]", "audit tail [-f] [FLAGS]", "audit key"),
      LIST("A server records every change, every execution and every refusal in files of JSON lines. Each record holds the hash of the previous record, and checkpoints are signed. The files and the server's public key are enough to detect a record that was changed, removed or moved.",
           "verify needs no server. It reads the given files in order, or the files of a directory, and reports that they are intact, or prints file, line and cause of the first bad record and exits with status 1. --key is the server's public key as `cove audit key` prints it: keep it on another machine. --head is a record that is known to exist, from `cove audit key --json`: without it, the removal of the newest records cannot be detected.",
           "export prints the records that your key may read, byte for byte as in the files; a complete export by the operator can be verified. tail prints the latest records as a table, and with -f new records as they are written."),
      EXAMPLES({ "cove audit key > audit.pub", "save the public key; keep it on another machine" },
               { "cove audit verify --key audit.pub /var/lib/cove/state/audit", "verify the audit trail" },
               { "cove audit export --since 24h > day.jsonl", "export the records of the last day" },
               { "cove audit tail -f --action security.", "stream security events" }),
      false, "cove-ctl", LIST("verify", "export", "tail", "key") },
    { VERB_USAGE, "usage", "show usage of a server",
      LIST("usage [FLAGS] [SANDBOX]"),
      LIST("Shows executions, processor time, lifetime of sandboxes, memory and storage reserved for that time, and output, for the last day or from --from to --to, in whole hours. --by groups by hour, user, sandbox or tenant. Live sandboxes are counted until now. Usage of sandboxes whose record the server has removed remains in the rows of their users. docs/usage.md defines each figure.",
           "The key needs the scope usage. With the scope admin, usage of all tenants is shown."),
      EXAMPLES({ "cove usage --from 7d --by user", "show the usage of each user in the last week" },
               { "cove usage --from 2027-01-01 --to 2027-02-01 --by tenant,hour --csv", "export a month for a spreadsheet" },
               { "cove usage sbq7", "show the usage of one sandbox" }),
      false, "cove-ctl" },
    { VERB_BUDGET, "budget", "limit what a tenant may use per day or month",
      LIST("budget get [FLAGS] [TENANT]", "budget set [FLAGS] TENANT", "budget clear [FLAGS] TENANT"),
      LIST("Requests beyond a budget are refused with budget_exceeded until the day or the month is over, and running work is stopped within two seconds. set changes the given bounds and keeps the others; clear removes the bounds of one period, or all. Usage counts from the beginning of the period, also before the budget was set.",
           "set and clear are for the operator: they need a key with the scope admin, or must be run by the server's owner on the same machine. get needs the scope usage; without TENANT it shows your own tenant. docs/usage.md defines each figure."),
      EXAMPLES({ "cove budget set --cpu 10h --executions 5000 acme", "set a daily budget for acme" },
               { "cove budget set --per month --alive 60d acme", "set a monthly budget" },
               { "cove budget get acme", "show what is left of a budget" },
               { "cove budget clear acme", "remove all budgets of acme" }),
      false, "cove-ctl", LIST("get", "set", "clear") },
    { VERB_TOP, "top", "show live resource usage of the sandboxes on a server",
      LIST("top [FLAGS]"),
      LIST("Shows every live sandbox with its processor usage, memory and memory limit, processes and executions, refreshed every two seconds until Ctrl-C. If standard output is not a terminal, the table is printed once. Running top does not keep a sandbox from becoming idle."),
      EXAMPLES({ "cove top --sort memory", "sort by memory" },
               { "cove top --once --json", "print one snapshot as JSON" }),
      false, "cove-ctl" },
    { VERB_PS, "ps", "list executions on a server",
      LIST("ps [FLAGS] [SANDBOX]"),
      LIST("Lists the executions of all sandboxes, or of one, the newest first. Without --all, --state and --outcome, those that have ended are left out."),
      EXAMPLES({ "cove ps", "list running executions" }, { "cove ps -a sbq7", "list all executions of one sandbox" },
               { "cove ps --outcome timeout --outcome out_of_memory", "list executions that met a limit" }),
      false, "cove-ctl" },
    { VERB_KEY, "key", "create, list and revoke API keys of a server",
      LIST("key create [FLAGS] NAME", "key ls [FLAGS]", "key revoke ID|NAME", "key rotate ID|NAME"),
      LIST("A key is printed when it is created; it won't be shown again. A key cannot have more permissions than its creator. rotate replaces the secret and keeps everything else. revoke and rotate accept the ID, a unique prefix of the ID, or a unique name.",
           "Scopes: sandboxes:read, sandboxes:write, executions, executions:read, files, files:read, keys, metrics, tenant, audit, usage, pools:write, and admin, which permits everything in all tenants."),
      EXAMPLES({ "cove key create --scope sandboxes:read --scope metrics grafana", "create a read-only key" },
               { "cove key create --expires 30d ci", "create a key that expires" },
               { "cove key ls", "list keys" }),
      false, "cove-ctl", LIST("create", "ls", "revoke", "rotate") },
    { VERB_TOOL, "tool", "call the tools that a server offers to language models",
      LIST("tool ls [FLAGS]", "tool show NAME", "tool call [FLAGS] [SANDBOX] NAME [JSON|-]"),
      LIST("A tool is a program or a file operation with a strict description for language models: run code, run commands, read, write, edit and find files. ls lists the tools, show prints the description and the arguments of one, and call calls it as a model would and prints the text that the model would get. The same tools are available over REST, over MCP and in the Python package.",
           "Arguments come from --arg NAME=VALUE, from a JSON object on the command line, or from standard input (-); --arg overrides the object. A value of --arg is text where the tool takes text, and JSON elsewhere. The status is 1 if the work of the tool failed. Ctrl-C ends it."),
      EXAMPLES({ "cove tool ls", "list the tools" },
               { "cove tool show edit_file", "print its description and its arguments" },
               { "cove tool call sbq7 bash --arg command='ls -l'", "run a command" },
               { "cove tool call sbq7 read_file '{\"file_path\": \"notes.txt\", \"limit\": 20}'", "read 20 lines" },
               { "cove tool call code_executor --arg code='print(6 * 7)'", "call a tool that needs no sandbox" }),
      false, "cove-ctl", LIST("ls", "show", "call") },
    { VERB_TEMPLATE, "template", "define what new sandboxes of a server contain",
      LIST("template ls [FLAGS]", "template show NAME", "template set [FLAGS] NAME", "template rm NAME..."),
      LIST("A template holds the language, resources, times, environment and preloaded Python modules of sandboxes. `cove sandbox create --template NAME` and `cove execute --template NAME` use it; their own flags override it. set creates a template or replaces it as a whole, from its flags and from --spec. A template that you store under the name of a built-in one replaces it until you remove it.",
           "Sandboxes that exist keep the values with which they were created. set and rm need a key with the scope admin, or must be run by the server's owner on the same machine; ls and show need sandboxes:read."),
      EXAMPLES({ "cove template ls", "list templates, and whether this host has what they need" },
               { "cove template set --runtime python --memory 1G --preload json --lifetime 15m big", "create or replace a template" },
               { "cove template show --json python | jq .spec > spec.json", "save the specification of a template" },
               { "cove template set --spec spec.json --memory 2G bigger", "create a template from it" }),
      false, "cove-ctl", LIST("ls", "show", "set", "rm") },
    { VERB_SCRIPT, "script", "list, show and remove code that ran successfully",
      LIST("script ls [FLAGS]", "script show ID", "script rm ID..."),
      LIST("Code that the tool run_sandbox ran successfully is kept for the tenant, once for the same code in the same language, and can be found and run again by its ID. ls prints the scripts that were used last first; with --search, those that contain every word, most matches first. show prints the code after its properties, or with -q the code alone.",
           "A server keeps a limited number of scripts for each tenant and removes the one that was not used for the longest time. ls and show need the scope executions:read, rm needs executions."),
      EXAMPLES({ "cove script ls --search 'csv import'", "find scripts that contain both words" },
               { "cove script show -q scq7... > task.py", "save the code of a script" }),
      false, "cove-ctl", LIST("ls", "show", "rm") },
    { VERB_SECRET, "secret", "set, list and remove secrets that sandboxes use without seeing them",
      LIST("secret set [FLAGS] NAME", "secret ls [FLAGS]", "secret show NAME", "secret rm NAME..."),
      LIST("A secret is a value, such as the key of an API, that the egress proxy adds to requests of a sandbox. It never enters the sandbox: code inside calls http://NAME.secret.cove/PATH, and the proxy sends the request over TLS to the host that the network of the sandbox binds the secret to. docs/secrets.md explains it.",
           "set reads the value from standard input, without showing it on a terminal, and creates the secret or replaces its value. No command prints a value again. The server keeps it encrypted. Secrets belong to the tenant; all subcommands need the scope secrets."),
      EXAMPLES({ "cove secret set openai --host api.openai.com < key.txt", "set a secret for one host, from a file" },
               { "cove secret set openai --env OPENAI_API_KEY", "set a secret from a variable" },
               { "cove sandbox create --secret openai@api.openai.com", "let a sandbox use it" }),
      false, "cove-ctl", LIST("set", "ls", "show", "rm") },
    { VERB_POOL, "pool", "keep sandboxes ready before they are requested",
      LIST("pool ls [FLAGS]", "pool info NAME", "pool set [FLAGS] NAME", "pool rm NAME"),
      LIST("A warm pool holds prepared sandboxes of one template, with a started interpreter if the template has a language. A request for that template takes a sandbox from the pool, which is faster than making one; when the pool is empty, a sandbox is made on request. All tenants share the pools. Each sandbox is used once, unless the pool has --recycle.",
           "The size of a pool follows recent demand, between --min and --max, so that the share --hit-rate of the requests finds a sandbox ready. set creates a pool, which needs --template, or changes the given values of an existing pool. set and rm need a key with the scope pools:write, or must be run by the server's owner on the same machine."),
      EXAMPLES({ "cove pool set --template python-data --min 2 --max 20 data", "create a pool" },
               { "cove pool ls", "list pools with size and hit rate" },
               { "cove pool set --max 50 data", "raise the maximum" }),
      false, "cove-ctl", LIST("ls", "info", "set", "rm") },
    { VERB_TENANT, "tenant", "create and manage tenants, which are isolated from each other",
      LIST("tenant create [FLAGS] NAME", "tenant ls [FLAGS]", "tenant info [NAME]", "tenant set [FLAGS] NAME", "tenant rm NAME"),
      LIST("Everything that a key creates belongs to the tenant of the key and is invisible to other tenants. A quota bounds all sandboxes of a tenant together; lowering a quota does not end existing sandboxes. These commands are for the operator: they need a key with the scope admin, or must be run by the server's owner on the same machine. info without NAME shows your own tenant.",
           "Suspending a tenant refuses all its requests and ends its sandboxes. rm ends its sandboxes, revokes its keys and removes its users and roles; the name cannot be used again."),
      EXAMPLES({ "cove tenant create --sandboxes 20 --memory 16G acme", "create a tenant with a quota" },
               { "cove tenant info acme", "show its usage of the quota" },
               { "cove tenant set --suspend acme", "suspend a tenant at once" }),
      false, "cove-ctl", LIST("create", "ls", "info", "set", "rm") },
    { VERB_USER, "user", "manage the users of a tenant and their roles",
      LIST("user add [FLAGS] NAME", "user ls [FLAGS]", "user info ID|NAME", "user set [FLAGS] ID|NAME", "user rm ID|NAME"),
      LIST("A request of a user needs a permission that both the role of the user and the scopes of the key contain. A change takes effect with the next request of the user and closes their open connections. You cannot assign a role with more permissions than your own, and the last admin of a tenant cannot be removed or demoted.",
           "The role admin permits everything in the tenant, developer everything except users, roles and the keys of others, viewer only reading. These commands need a key with the scope tenant."),
      EXAMPLES({ "cove user add --role developer anna", "add a user" },
               { "cove key create --user anna laptop", "create a key for the user" },
               { "cove user set --disable anna", "disable a user at once" }),
      false, "cove-ctl", LIST("add", "ls", "info", "set", "rm") },
    { VERB_ROLE, "role", "create and manage roles of a tenant",
      LIST("role create --allow PERMISSION... NAME", "role ls [FLAGS]", "role show NAME", "role rm NAME"),
      LIST("A role is a list of permissions, which have the names of the scopes of keys. A role cannot be changed: create another role, assign it to the users and remove the first. These commands need a key with the scope tenant."),
      EXAMPLES({ "cove role create --allow sandboxes:read --allow executions runner", "create a role that may only run programs" },
               { "cove role show developer", "show the permissions of a role" }),
      false, "cove-ctl", LIST("create", "ls", "show", "rm") },
    { VERB_TOKEN, "token", "delegate permissions: tokens, signed URLs, tickets",
      LIST("token create [FLAGS] SANDBOX", "token url [FLAGS] SANDBOX:PATH", "token ticket [FLAGS] PATH", "token revoke --all"),
      LIST("create makes a token that is used like a key but reaches only one sandbox. url makes a URL with which one file can be read, or written with --put, without a key. Both expire after their time, with their sandbox and with the key that made them; neither has more permissions than that key.",
           "ticket makes a single-use token for one request within a minute, sent as ?ticket= in the URL, for browsers that cannot send a key with every request. revoke --all revokes all tokens and signed URLs of the server at once; it needs the scope admin."),
      EXAMPLES({ "cove token create --ttl 10m sbq7", "permit code and files in this sandbox for ten minutes" },
               { "cove token create --scope files sbq7", "permit only files" },
               { "cove token url sbq7:plot.png", "make a link to a file" },
               { "curl -T data.csv \"$(cove token url --put sbq7:data.csv)\"", "upload a file without a key" }),
      false, "cove-ctl", LIST("create", "url", "ticket", "revoke") },
    { VERB_LOGIN, "login", "store the address and key of a server",
      LIST("login [FLAGS] [URL]"),
      LIST("Reads a key from standard input (without echo on a terminal), checks it with the server, and stores both in ~/.config/cove/login.json, readable only by you. Every verb that needs a server then uses them; --url, COVE_URL and COVE_API_KEY take precedence. The path of --cacert is stored too. The default URL is COVE_URL, or http://127.0.0.1:8700.",
           "--device needs no key: cove prints the address of a page of the server's identity provider and a code. Open the page in a browser on any machine, enter the code and log in. The returned token is stored, and renewed when it expires, for as long as the provider permits."),
      EXAMPLES({ "cove login https://cove.example.org", "log in and type the key" },
               { "cove login https://cove.example.org < key.txt", "read the key from a file" },
               { "cove login --cacert ca.pem https://cove.example.org", "trust your own certificate authority" },
               { "cove login --device https://cove.example.org", "log in with a browser" }),
      false, "cove-ctl" },
    { VERB_LOGOUT, "logout", "remove the stored address and key",
      LIST("logout [FLAGS]"),
      LIST("Removes the file that `cove login` wrote. The key remains valid: `cove key revoke` revokes it."),
      EXAMPLES({ "cove logout", "remove the stored key" }),
      false, "cove-ctl" },
    { VERB_WHOAMI, "whoami", "show the server, your identity and your permissions",
      LIST("whoami [FLAGS]"),
      LIST("Shows the server in use, and the tenant, the key or token, its scopes and its expiry as the server knows them."),
      EXAMPLES({ "cove whoami", "show your identity" }),
      false, "cove-ctl" },
    { VERB_GC, "gc", "remove expired records and files of a server",
      LIST("gc [FLAGS]"),
      LIST("Makes the server remove executions, tombstones of sandboxes, events and output that are older than its `retention` settings, and orphaned output files. The server removes expired records itself every hour. Live sandboxes are never affected. It needs a key with the scope admin, or must be run by the server's owner on the same machine."),
      EXAMPLES({ "cove gc --dry-run", "show what would be removed" }),
      false, "cove-ctl" },
    { VERB_BACKUP, "backup", "copy a server's database into a file",
      LIST("backup [FLAGS] FILE"),
      LIST("A running server makes the copy itself and keeps working; this needs a key with the scope admin, or must be run by the server's owner on the same machine. If no server runs, the database is read directly. FILE must not exist yet; - is standard output. The backup holds all records of the server except the output of executions. It contains the hashes of keys: protect it."),
      EXAMPLES({ "cove backup cove-$(date +%F).db", "back up the server on this machine" },
               { "cove backup --state-dir /srv/cove copy.db", "back up the server of that directory" },
               { "cove backup --store-url sqlite:/srv/db/cove.db copy.db", "copy the database of a stopped server" }),
      false, "cove-store" },
    { VERB_RESTORE, "restore", "replace a server's database with a backup",
      LIST("restore [FLAGS] FILE"),
      LIST("The server must be stopped. FILE is checked completely before anything is changed, and the old database is kept under its name with the suffix .before-restore. After the next start, sandboxes that are alive in the backup are reported as lost. Keys have the state of the backup: keys revoked since then must be revoked again."),
      EXAMPLES({ "cove restore cove-2027-01-31.db", "restore the server on this machine" }),
      false, "cove-store" },
    { VERB_POLICY, "policy", "check, show, compare, import and explain policies",
      LIST("policy check FILE", "policy show [NAME|FILE]", "policy diff A B", "policy import SETTINGS.json", "policy why [FLAGS] NAME|FILE|SANDBOX URL"),
      LIST("A policy defines everything about a sandbox that does not depend on its program: files, network, system calls, limits, environment. Some policies are built in (show without a name lists them); a file in YAML or JSON extends one of them. docs/policies.md lists names and values; an unknown key is an error.",
           "check reads a file and reports every error with its line. show prints a complete policy, with the source of each value. diff prints the differences between two policies, and exits with status 1 if there are any. import reads settings of sandbox-runtime, prints a policy, and reports for each setting on standard error how it was translated.",
           "why decides whether the network rules of a policy or of a sandbox allow a URL, and prints the rule that decides and, if the URL is refused, the rule that would allow it. It sends nothing to the host of the URL. The exit status is 0 if the URL is allowed, and 1 if it is refused.",
           "The operator limits in /etc/cove/floor.yaml apply to every policy and every flag: a value beyond them is refused if it was given, and lowered if it is a default. The variable COVE_FLOOR may name a second file, which can only narrow the limits further."),
      EXAMPLES({ "cove policy show debug", "print a built-in policy" },
               { "cove policy check build.yaml", "report every error with its line" },
               { "cove policy diff standard build.yaml", "show what a file changes" },
               { "cove policy import ~/.srt-settings.json > policy.yaml", "import settings of sandbox-runtime" },
               { "cove policy why sbq7 https://pypi.org/simple/", "explain whether a sandbox may fetch this URL" },
               { "cove policy why build.yaml https://pypi.org/simple/", "the same of a policy, without a server" }),
      false, "cove-policy", LIST("check", "show", "diff", "import", "why") },
    { VERB_CALC, "calc", "compute an expression exactly, without a server",
      LIST("calc [FLAGS] EXPRESSION", "calc [FLAGS] -"),
      LIST("Computes a formula, or a simple problem in English words, with exact fractions. A result that is not rational is correctly rounded to --digits and printed after \"\u2248\". A fraction whose decimal does not end is printed with its rounded decimal. Text that has more than one reading is refused. docs/calculate.md lists the operators, functions and phrases.",
           "Without an expression, or with -, each line of standard input is an expression and gets one answer. Sizes are bounded: numbers have at most 10,000 digits. The exit status is 0; 2 if an expression is not understood; 1 if it has no result."),
      EXAMPLES({ "cove calc '1/3 + 1/6'", "compute a formula" },
               { "cove calc 'What is 15% of 80?'", "compute a problem in words" },
               { "cove calc --digits 50 'sqrt(2)'", "compute 50 digits" },
               { "cove calc --steps '(1 + 2) * 3!'", "show each step" },
               { "cove calc --json - < expressions.txt", "compute one expression per line, for programs" }),
      false, "cove-calc" },
    { VERB_DOCTOR, "doctor", "test the walls on this host by attacking real sandboxes",
      LIST("doctor [FLAGS]"),
      LIST("Starts real sandboxes with small limits and attacks them from inside, as hostile code would. Prints one line for each wall and each limit: held, partial or open, and the attack; for a missing wall or limit, also the cause and the fix. The last line is the verdict. It takes about a second and changes nothing on the host.",
           "The exit status is for scripts. 0: level standard is complete on this host. 1: a wall is open, or a limit that cove reports as enforced was exceeded. 3: a wall or limit is only partial here, as for an unprivileged user, and everything else held. If no sandbox can be made at all, the error is the same as for `cove run`, with status 125."),
      EXAMPLES({ "cove doctor", "test this host" },
               { "cove doctor --json", "print the report as JSON" }),
      false },
    { VERB_RUNTIMES, "runtimes", "list the language runtimes found on this host",
      LIST("runtimes [FLAGS]"),
      LIST("Lists the runtimes that --runtime and scripts can use, with the program of each. Runtimes are searched in /usr/local/bin, /usr/bin and /bin, the directories that are visible in a sandbox; a runtime that is a link to another directory is listed with the reason why it cannot be used. A built-in template of `cove serve` whose Python modules are missing on this host is listed with the command that installs them."),
      EXAMPLES({ "cove runtimes", "print one line per runtime" }),
      false },
    { VERB_EXPLAIN, "explain", "explain a receipt in plain words",
      LIST("explain [FLAGS] FILE", "explain [FLAGS] -"),
      LIST("Reads a receipt that `cove run --receipt=FILE` wrote, or the object that `cove run --json` printed, and explains why the program ended, what it used, which operations were denied and why, which limits it hit, and what could not be measured. With - it reads standard input. Nothing is started."),
      EXAMPLES({ "cove explain receipt.json", "explain a receipt" },
               { "cove run --json -- mount | cove explain -", "run a program and explain its receipt" }),
      false },
    { VERB_ERRORS, "errors", "explain an error code",
      LIST("errors [FLAGS] [CODE]"),
      LIST("Every error of cove has a code that does not change between versions. Prints the meaning of CODE, the fix and the exit status; without CODE, prints all codes."),
      EXAMPLES({ "cove errors program_not_found", "explain one code" }),
      false },
    { VERB_COMPLETION, "completion", "print a completion script for a shell",
      LIST("completion bash|zsh|fish"),
      LIST("Prints a script that completes the verbs and flags of this version of cove."),
      EXAMPLES({ "cove completion bash > /etc/bash_completion.d/cove", "install it for bash" },
               { "cove completion zsh > /usr/local/share/zsh/site-functions/_cove", "install it for zsh" },
               { "cove completion fish > ~/.config/fish/completions/cove.fish", "install it for fish" }),
      false },
    { VERB_HELP, "help", "show help for cove or for one verb",
      LIST("help [VERB]"), LIST("Shows the list of verbs, or the complete help of one verb."),
      EXAMPLES({ "cove help run", "show the help of run" }), false },
    { VERB_VERSION, "version", "print the version",
      LIST("version", "--version"), LIST("Prints the version of cove."),
      EXAMPLES({ "cove version", "print the version" }), false },
};

static const struct cli_exit cli_exit_table[] = {
    { "0-122", "exit status of the program; the values below have a special meaning" },
    { "123", "the program exceeded the memory limit" },
    { "124", "the program exceeded a time limit: --timeout, --cpu-time or --lifetime" },
    { "125", "cove refused the request or failed; the message ends with the code of the error" },
    { "126", "the program exists but cannot be executed" },
    { "127", "the program or its runtime was not found" },
    { "128+N", "signal N ended the program" },
    { "2", "the command line is wrong" },
    { NULL, NULL },
};

static const char *const cli_group_titles[GROUP_COUNT] = {
    [GROUP_PROGRAM] = "Program",          [GROUP_FILES] = "Files",
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
    if (o->verb == VERB_EXEC || o->verb == VERB_CONTEXT || o->verb == VERB_SHELL || o->verb == VERB_TEMPLATE)
        return NULL; /* the sandbox has its own */
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
    static const char *const drivers[] = {
#define DRIVER(name, id, summary) #name,
#include "policy/drivers.def"
#undef DRIVER
        NULL
    };
    static const char *const nets[] = { "none", "egress", NULL };
    static const char *const tiers[] = { "simple", "auto", "full", NULL };
    static const char *const none[] = { NULL };

    switch (c) {
    case COMPLETE_RUNTIME:
        return runtimes;
    case COMPLETE_POLICY:
        return policies;
    case COMPLETE_LEVEL:
        return levels;
    case COMPLETE_DRIVER:
        return drivers;
    case COMPLETE_NET:
        return nets;
    case COMPLETE_TIER:
        return tiers;
    default:
        return none;
    }
}
