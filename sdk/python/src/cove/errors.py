"""The errors of the server as classes, one for each code.

Written by tools/doctables from src/core/base/errors.def. Catch the errors that you can handle:
`SandboxEndedError`, a whole kind such as `NotFoundError`, or `CoveError` for all.
"""
from __future__ import annotations

from typing import Dict, Type

from ._error import CoveError, ExecutionFailedError, LostError, WaitTimeoutError


class InvalidRequestError(CoveError):
    """Something in the request is malformed or out of range."""

    code = "invalid_request"
    default_cause = "Something in the request is malformed or out of range."
    default_fix = "Correct the value that the message names."


class BadUsageError(InvalidRequestError):
    """The command line could not be understood."""

    code = "bad_usage"
    default_cause = "The command line could not be understood."
    default_fix = "Run the command with --help for its flags and examples."


class ForbiddenError(CoveError):
    """The request was understood and refused."""

    code = "forbidden"
    default_cause = "The request was understood and refused."
    default_fix = "Use a key or a role that has the right which the message names, ask for less, or change the policy that it names."


class NotFoundError(CoveError):
    """The thing that was named does not exist."""

    code = "not_found"
    default_cause = "The thing that was named does not exist."
    default_fix = "Check the name; list what exists."


class ConflictError(CoveError):
    """The thing exists already, or its state does not allow this now."""

    code = "conflict"
    default_cause = "The thing exists already, or its state does not allow this now."
    default_fix = "Choose another name, or wait until the state changes."


class ServiceUnavailableError(CoveError):
    """The service cannot take this now."""

    code = "service_unavailable"
    default_cause = "The service cannot take this now."
    default_fix = "Try again after a moment."


class LimitReachedError(CoveError):
    """A limit of the sandbox or of the host was reached."""

    code = "limit_reached"
    default_cause = "A limit of the sandbox or of the host was reached."
    default_fix = "Raise the limit that the message names, or use less of it."


class TimedOutError(CoveError):
    """A clock ran out before the work was done."""

    code = "timeout"
    default_cause = "A clock ran out before the work was done."
    default_fix = "Give it more time, or make the work smaller."


class InternalError(CoveError):
    """The operating system refused something that cove needs."""

    code = "internal_error"
    default_cause = "The operating system refused something that cove needs."
    default_fix = "Read the message for the call and its reason; `cove run --dry-run` shows what this host supports."


class InternalBugError(InternalError):
    """cove met a state that its own code should have made impossible."""

    code = "internal_bug"
    default_cause = "cove met a state that its own code should have made impossible."
    default_fix = "Please report the message together with the command that led to it."


class SandboxLostError(LostError):
    """The process that held the sandbox ended unexpectedly, and the sandbox with it."""

    code = "sandbox_lost"
    default_cause = "The process that held the sandbox ended unexpectedly, and the sandbox with it."
    default_fix = "Run it again; if it repeats, report it with the kernel log of that moment."


class ProtocolError(InvalidRequestError):
    """The other side of a connection sent something that the protocol does not allow."""

    code = "protocol_error"
    default_cause = "The other side of a connection sent something that the protocol does not allow."
    default_fix = "If both sides are the same version of cove, report it; otherwise install matching versions."


class VersionMismatchError(InvalidRequestError):
    """Two parts of cove of different versions met."""

    code = "version_mismatch"
    default_cause = "Two parts of cove of different versions met."
    default_fix = "Install all of cove from the same release, then restart it."


class LevelUnavailableError(ForbiddenError):
    """The isolation level that was asked for does not exist on this host."""

    code = "level_unavailable"
    default_cause = "The isolation level that was asked for does not exist on this host."
    default_fix = "Use --level standard, or install what the message names."


class WallMissingError(ForbiddenError):
    """A wall of the sandbox cannot be raised on this host, and cove never runs code without it."""

    code = "wall_missing"
    default_cause = "A wall of the sandbox cannot be raised on this host, and cove never runs code without it."
    default_fix = "Give the host what the message names (kernel, privilege or setting); a server that was not started by root needs --limits-enforced false."


class NoNamespacesError(ForbiddenError):
    """This host does not let cove make the namespaces a sandbox needs."""

    code = "no_namespaces"
    default_cause = "This host does not let cove make the namespaces a sandbox needs."
    default_fix = "Change what the message names. In general it takes a kernel with user namespaces (sysctl user.max_user_namespaces above 0), and root with its capabilities or a plain user who may make them."


class NoCgroupError(ForbiddenError):
    """No cgroup controller that cove may write was found, so limits could not be enforced."""

    code = "no_cgroup"
    default_cause = "No cgroup controller that cove may write was found, so limits could not be enforced."
    default_fix = "Mount the cgroup file system, or run as root; see docs/limits.md."


class NoLandlockError(ForbiddenError):
    """The kernel has no Landlock, which standard demands."""

    code = "no_landlock"
    default_cause = "The kernel has no Landlock, which standard demands."
    default_fix = "Use Linux 5.13 or newer with Landlock switched on (lsm=landlock,...)."


class LimitNotEnforcedError(ForbiddenError):
    """A limit cannot be enforced on this host."""

    code = "limit_not_enforced"
    default_cause = "A limit cannot be enforced on this host."
    default_fix = "Give the host the cgroup controller that the message names."


class ProgramNotFoundError(NotFoundError):
    """The program does not exist inside the sandbox."""

    code = "program_not_found"
    default_cause = "The program does not exist inside the sandbox."
    default_fix = "Programs are found in /usr/local/bin, /usr/bin and /bin of the host; give a path that exists there, or bind one in with --bind-ro."


class ProgramNotExecutableError(ForbiddenError):
    """The program exists but cannot be executed."""

    code = "program_not_executable"
    default_cause = "The program exists but cannot be executed."
    default_fix = "Make the file executable, or run it through its interpreter."


class RuntimeNotFoundError(NotFoundError):
    """The language runtime was not found on this host."""

    code = "runtime_not_found"
    default_cause = "The language runtime was not found on this host."
    default_fix = "Install it (for example: apt-get install python3), or choose another (--runtime, --language)."


class BindSourceUnreadableError(InvalidRequestError):
    """The source of a bind cannot be opened."""

    code = "bind_source_unreadable"
    default_cause = "The source of a bind cannot be opened."
    default_fix = "Check that the path exists and that you may read it."


class BindTargetRefusedError(InvalidRequestError):
    """The target of a bind is not a place where binds may go."""

    code = "bind_target_refused"
    default_cause = "The target of a bind is not a place where binds may go."
    default_fix = "Bind onto an existing path of the root, or below /mnt or /workspace."


class WorkspaceRefusedError(InvalidRequestError):
    """The directory cannot serve as /workspace."""

    code = "workspace_refused"
    default_cause = "The directory cannot serve as /workspace."
    default_fix = "Use a directory on a file system that supports idmapped mounts (ext4, xfs, btrfs, tmpfs), or DIR:cow."


class DiskFullError(LimitReachedError):
    """The host has no room left for what the sandbox needs."""

    code = "disk_full"
    default_cause = "The host has no room left for what the sandbox needs."
    default_fix = "Free some space or memory on the host."


class ProcessLimitReachedError(LimitReachedError):
    """The sandbox is at its process limit, so nothing more could be started in it."""

    code = "process_limit_reached"
    default_cause = "The sandbox is at its process limit, so nothing more could be started in it."
    default_fix = "Raise --pids, or start fewer processes."


class RuntimeProgramMissingError(InternalError):
    """cove-runtime, the program that becomes PID 1 of a sandbox, was not found next to cove."""

    code = "runtime_program_missing"
    default_cause = "cove-runtime, the program that becomes PID 1 of a sandbox, was not found next to cove."
    default_fix = "Reinstall cove, or set COVE_LIBEXEC to the directory that holds cove-runtime."


class NotSupportedError(ForbiddenError):
    """This combination is not supported by this version of cove."""

    code = "not_supported"
    default_cause = "This combination is not supported by this version of cove."
    default_fix = "See the message for what to use instead."


class PolicyNotFoundError(NotFoundError):
    """There is no policy of that name, and no such file."""

    code = "policy_not_found"
    default_cause = "There is no policy of that name, and no such file."
    default_fix = "Name a built-in policy (standard, debug) or a policy file; `cove policy show` lists the built-in ones."


class PolicySyntaxError(InvalidRequestError):
    """The policy file is not well-formed YAML or JSON."""

    code = "policy_syntax"
    default_cause = "The policy file is not well-formed YAML or JSON."
    default_fix = "Correct the line that the message names."


class PolicyUnknownKeyError(InvalidRequestError):
    """The policy file has a key that does not exist, so what its author meant would not be enforced."""

    code = "policy_unknown_key"
    default_cause = "The policy file has a key that does not exist, so what its author meant would not be enforced."
    default_fix = "Use a key that the message offers, or remove it; docs/policies.md lists them all."


class PolicyBadValueError(InvalidRequestError):
    """A value in the policy file is malformed, out of range or of the wrong kind."""

    code = "policy_bad_value"
    default_cause = "A value in the policy file is malformed, out of range or of the wrong kind."
    default_fix = "Correct the value on the line that the message names."


class PolicyNotSupportedError(ForbiddenError):
    """The policy asks for something that this version of cove cannot enforce, so it is refused as a whole."""

    code = "policy_not_supported"
    default_cause = "The policy asks for something that this version of cove cannot enforce, so it is refused as a whole."
    default_fix = "Remove what the message names, or use what it offers instead."


class PolicyBelowFloorError(ForbiddenError):
    """The policy or a flag asks for more than the operator of this host allows."""

    code = "policy_below_floor"
    default_cause = "The policy or a flag asks for more than the operator of this host allows."
    default_fix = "Stay within the floor that the message names, or ask whoever runs this host to lower it."


class PolicyProgramMissingError(InternalError):
    """cove-policy, the program that reads policy files, was not found next to cove."""

    code = "policy_program_missing"
    default_cause = "cove-policy, the program that reads policy files, was not found next to cove."
    default_fix = "Reinstall cove, or set COVE_LIBEXEC to the directory that holds cove-policy."


class ProbeProgramMissingError(InternalError):
    """cove-probe, the program that attacks a sandbox for cove doctor, was not found next to cove."""

    code = "probe_program_missing"
    default_cause = "cove-probe, the program that attacks a sandbox for cove doctor, was not found next to cove."
    default_fix = "Reinstall cove, or set COVE_LIBEXEC to the directory that holds cove-probe."


class ConfigSyntaxError(InvalidRequestError):
    """The server's configuration file is not well-formed YAML or JSON."""

    code = "config_syntax"
    default_cause = "The server's configuration file is not well-formed YAML or JSON."
    default_fix = "Correct the line that the message names."


class ConfigUnknownKeyError(InvalidRequestError):
    """The configuration has a setting that does not exist, so what its author meant would not happen."""

    code = "config_unknown_key"
    default_cause = "The configuration has a setting that does not exist, so what its author meant would not happen."
    default_fix = "Use the name that the message offers, or remove it; docs/configuration.md lists all settings."


class ConfigBadValueError(InvalidRequestError):
    """The value of a setting is malformed or out of range."""

    code = "config_bad_value"
    default_cause = "The value of a setting is malformed or out of range."
    default_fix = "Correct the value where the message says."


class ConfigUnsafeFileError(ForbiddenError):
    """Somebody who must not decide about the server could write its configuration file."""

    code = "config_unsafe_file"
    default_cause = "Somebody who must not decide about the server could write its configuration file."
    default_fix = "Make the file root's or your own and take the right to write from all others: chmod go-w FILE."


class StateDirUnusableError(ForbiddenError):
    """The server cannot use one of its directories: it cannot be made or written, or it belongs to somebody else."""

    code = "state_dir_unusable"
    default_cause = "The server cannot use one of its directories: it cannot be made or written, or it belongs to somebody else."
    default_fix = "Give it to the user that the message names (chown), or choose another place with --state-dir."


class DescriptorsExhaustedError(ServiceUnavailableError):
    """The server has as many files and connections open as its system allows, and could not open what was asked for. Nothing is lost."""

    code = "descriptors_exhausted"
    default_cause = "The server has as many files and connections open as its system allows, and could not open what was asked for. Nothing is lost."
    default_fix = "Try again after a moment. If it goes on, the operator raises the limit of open files (LimitNOFILE of the service, or ulimit -n), or lowers http.maxConnections and webSocket.maxConnections."


class AddressInUseError(ServiceUnavailableError):
    """Another program listens on the server's address already."""

    code = "address_in_use"
    default_cause = "Another program listens on the server's address already."
    default_fix = "Stop it, or choose another address with --listen."


class ServerRunningError(ServiceUnavailableError):
    """Another cove server uses the same directories."""

    code = "server_running"
    default_cause = "Another cove server uses the same directories."
    default_fix = "Stop the other server, or give this one a --state-dir of its own."


class TlsFilesUnusableError(InvalidRequestError):
    """The server's certificate or key for TLS cannot be read or used."""

    code = "tls_files_unusable"
    default_cause = "The server's certificate or key for TLS cannot be read or used."
    default_fix = "Put PEM files in place: the certificate with its chain in tls.certificate, the key that belongs to it, without a password, in tls.key; see docs/tls.md."


class HttpsRequiredError(InvalidRequestError):
    """The request was sent without encryption to an address where the server speaks TLS."""

    code = "https_required"
    default_cause = "The request was sent without encryption to an address where the server speaks TLS."
    default_fix = "Use https:// instead of http:// in the address."


class ServerNotTrustedError(ForbiddenError):
    """The server proved to be somebody that this machine has no reason to trust: its certificate is out of date, for another name, or signed by an unknown authority."""

    code = "server_not_trusted"
    default_cause = "The server proved to be somebody that this machine has no reason to trust: its certificate is out of date, for another name, or signed by an unknown authority."
    default_fix = "Name the authority's certificate with --cacert or COVE_CACERT, or have the server's certificate renewed."


class ProgramMissingError(InternalError):
    """A program that this verb of cove needs was not found next to cove."""

    code = "program_missing"
    default_cause = "A program that this verb of cove needs was not found next to cove."
    default_fix = "Reinstall cove, or set COVE_LIBEXEC to the directory that holds it."


class ServerUnreachableError(LostError):
    """No server of cove answered at the address."""

    code = "server_unreachable"
    default_cause = "No server of cove answered at the address."
    default_fix = "Start one with `cove serve`, or name the right one with --url or COVE_URL."


class ConnectionLostError(LostError):
    """The connection to the server ended in the middle of an answer."""

    code = "connection_lost"
    default_cause = "The connection to the server ended in the middle of an answer."
    default_fix = "Try again; what runs in a sandbox goes on without the connection, and its output is kept."


class UnauthorizedError(ForbiddenError):
    """The request carries no key, or one that is unknown, expired or revoked."""

    code = "unauthorized"
    default_cause = "The request carries no key, or one that is unknown, expired or revoked."
    default_fix = "Send a valid key as `Authorization: Bearer cove_...`; `cove key create` makes one."


class UserRemovedError(ForbiddenError):
    """The token is good, but an admin removed the user that it names from the tenant, and users who were removed are not made again by their next token."""

    code = "user_removed"
    default_cause = "The token is good, but an admin removed the user that it names from the tenant, and users who were removed are not made again by their next token."
    default_fix = "Ask an admin of the tenant; `cove user add --role ROLE NAME` lets them in again."


class TenantSuspendedError(ForbiddenError):
    """The tenant of this key was suspended by the operator of the server, and all that was live in it was ended."""

    code = "tenant_suspended"
    default_cause = "The tenant of this key was suspended by the operator of the server, and all that was live in it was ended."
    default_fix = "Ask the operator; `cove tenant set --resume NAME` lifts it."


class QuotaExceededError(LimitReachedError):
    """The tenant has as much of something as it may have: sandboxes, processors, memory, storage, or executions within an hour."""

    code = "quota_exceeded"
    default_cause = "The tenant has as much of something as it may have: sandboxes, processors, memory, storage, or executions within an hour."
    default_fix = "End what is not needed any more, wait where the answer says how long, or ask the operator of the server for a larger quota; cove tenant info, or GET /v1/tenant, tells what is used."


class TemplateInUseError(ConflictError):
    """A warm pool is made of the template, and would have nothing to be refilled from."""

    code = "template_in_use"
    default_cause = "A warm pool is made of the template, and would have nothing to be refilled from."
    default_fix = "Remove the pool that the message names (`cove pool rm`), or give it another template, and then delete the template."


class LastAdminError(ConflictError):
    """This would leave the tenant without anybody who can manage it."""

    code = "last_admin"
    default_cause = "This would leave the tenant without anybody who can manage it."
    default_fix = "Make somebody else an admin first, or ask the operator of the server."


class IssuerUnreachableError(ServiceUnavailableError):
    """The request carries a token of an issuer, and the server could not fetch that issuer's keys to check it."""

    code = "issuer_unreachable"
    default_cause = "The request carries a token of an issuer, and the server could not fetch that issuer's keys to check it."
    default_fix = "Try again after a moment; the operator finds the reason in the server's log, and the address in auth.jwt.jwksUrl."


class RateLimitedError(LimitReachedError):
    """Too many requests came with this key, or too many wrong keys from this address."""

    code = "rate_limited"
    default_cause = "Too many requests came with this key, or too many wrong keys from this address."
    default_fix = "Wait for the time that Retry-After names."


class AuditUnavailableError(ServiceUnavailableError):
    """The audit log cannot be written: its disk is full or refuses, and the server changes nothing that it cannot record."""

    code = "audit_unavailable"
    default_cause = "The audit log cannot be written: its disk is full or refuses, and the server changes nothing that it cannot record."
    default_fix = "Free some space on the disk of the server's state directory, or look into its log for the reason; it goes on by itself."


class StoreFullError(LimitReachedError):
    """The disk that holds the server's database has no room left, so nothing new can be remembered."""

    code = "store_full"
    default_cause = "The disk that holds the server's database has no room left, so nothing new can be remembered."
    default_fix = "Free some space there, or let `cove gc` remove what is old; the server goes on by itself."


class StoreCorruptError(InternalError):
    """The server's database is damaged, or the file is not a database of cove."""

    code = "store_corrupt"
    default_cause = "The server's database is damaged, or the file is not a database of cove."
    default_fix = "Stop the server and restore a backup with `cove restore FILE`."


class StoreFailedError(InternalError):
    """The server's database could not be read or written."""

    code = "store_failed"
    default_cause = "The server's database could not be read or written."
    default_fix = "Look at the message for the reason: the disk, its rights, or a file system that is mounted read-only."


class StoreInUseError(ServiceUnavailableError):
    """Another process has the server's database open."""

    code = "store_in_use"
    default_cause = "Another process has the server's database open."
    default_fix = "Stop the other server, or give this one a --state-dir of its own."


class StoreTooNewError(ForbiddenError):
    """The server's database was written by a newer version of cove."""

    code = "store_too_new"
    default_cause = "The server's database was written by a newer version of cove."
    default_fix = "Install that version again, or restore a backup that this version made."


class ScriptNotFoundError(NotFoundError):
    """The script does not exist on this host."""

    code = "script_not_found"
    default_cause = "The script does not exist on this host."
    default_fix = "Check the path: a script is read from here before the sandbox is made. A program of the sandbox is written after '--'."


class BindSourceRefusedError(ForbiddenError):
    """What was to be lent is never lent to a sandbox."""

    code = "bind_source_refused"
    default_cause = "What was to be lent is never lent to a sandbox."
    default_fix = "Name a directory below it that holds nothing but files."


class MalformedRequestError(InvalidRequestError):
    """The request is not well-formed HTTP, or it could be read in more than one way."""

    code = "malformed_request"
    default_cause = "The request is not well-formed HTTP, or it could be read in more than one way."
    default_fix = "Use an HTTP client as it comes; if a proxy is in between, look at what it forwards."


class RouteNotFoundError(NotFoundError):
    """The server has nothing at this path."""

    code = "route_not_found"
    default_cause = "The server has nothing at this path."
    default_fix = "Compare the path with the API reference; all paths of the API begin with /v1/."


class MethodNotAllowedError(InvalidRequestError):
    """The path exists, but not with this method."""

    code = "method_not_allowed"
    default_cause = "The path exists, but not with this method."
    default_fix = "Use one of the methods of the Allow header."


class NotImplementedError(InvalidRequestError):
    """The request uses a method or a transfer coding that this server does not know."""

    code = "not_implemented"
    default_cause = "The request uses a method or a transfer coding that this server does not know."
    default_fix = "Use GET, POST, PUT, PATCH or DELETE, and no transfer coding but chunked."


class RequestTimeoutError(TimedOutError):
    """The rest of the request did not come in time."""

    code = "request_timeout"
    default_cause = "The rest of the request did not come in time."
    default_fix = "Send it without long pauses; look at the network in between."


class PreconditionFailedError(ConflictError):
    """The thing has changed since the version that the request names."""

    code = "precondition_failed"
    default_cause = "The thing has changed since the version that the request names."
    default_fix = "Read it again, and repeat the request with its new entity tag."


class BodyTooLargeError(LimitReachedError):
    """The body of the request is larger than this path takes."""

    code = "body_too_large"
    default_cause = "The body of the request is larger than this path takes."
    default_fix = "Send less, or use the path for files, which streams."


class UriTooLongError(LimitReachedError):
    """The request line is longer than the server reads."""

    code = "uri_too_long"
    default_cause = "The request line is longer than the server reads."
    default_fix = "Shorten the path or the query."


class UnsupportedMediaTypeError(InvalidRequestError):
    """The body has a type or an encoding that this path does not take."""

    code = "unsupported_media_type"
    default_cause = "The body has a type or an encoding that this path does not take."
    default_fix = "Send the Content-Type that the message names, without Content-Encoding."


class RangeNotSatisfiableError(InvalidRequestError):
    """The range lies outside of what there is."""

    code = "range_not_satisfiable"
    default_cause = "The range lies outside of what there is."
    default_fix = "Ask for a range within the size that the Content-Range header tells."


class ExpectationFailedError(InvalidRequestError):
    """The request expects something of the server that it does not know."""

    code = "expectation_failed"
    default_cause = "The request expects something of the server that it does not know."
    default_fix = "Leave out the Expect header, or send 100-continue."


class HostNotAllowedError(ForbiddenError):
    """The request is addressed to a name that this server does not answer for. Web pages of strangers do this to reach servers behind a browser."""

    code = "host_not_allowed"
    default_cause = "The request is addressed to a name that this server does not answer for. Web pages of strangers do this to reach servers behind a browser."
    default_fix = "Use the server's address or localhost, or add the name to the server's list of hosts."


class OriginNotAllowedError(ForbiddenError):
    """The request comes from a web page of an origin that may not call this server."""

    code = "origin_not_allowed"
    default_cause = "The request comes from a web page of an origin that may not call this server."
    default_fix = "Add the origin to the server's list, if its pages are yours."


class UpgradeRequiredError(InvalidRequestError):
    """The path is a WebSocket, and the request does not ask for one in a way that is understood here."""

    code = "upgrade_required"
    default_cause = "The path is a WebSocket, and the request does not ask for one in a way that is understood here."
    default_fix = "Connect with a WebSocket client (version 13); for plain HTTP, use the executions of the sandbox."


class HeadersTooLargeError(LimitReachedError):
    """The headers of the request are larger or more than the server reads."""

    code = "headers_too_large"
    default_cause = "The headers of the request are larger or more than the server reads."
    default_fix = "Send fewer and shorter headers."


class BudgetExceededError(LimitReachedError):
    """The tenant has used up what it may use in this day or month."""

    code = "budget_exceeded"
    default_cause = "The tenant has used up what it may use in this day or month."
    default_fix = "Wait until the budget renews, at the time that the message names, or ask the operator of the server for a larger one."


class ClientGoneError(LostError):
    """The client went away before its request was complete."""

    code = "client_gone"
    default_cause = "The client went away before its request was complete."
    default_fix = "Nothing needs to be done; the client may send the request again."


class SandboxEndedError(NotFoundError):
    """The sandbox has ended, and nothing can be done in it any more."""

    code = "sandbox_ended"
    default_cause = "The sandbox has ended, and nothing can be done in it any more."
    default_fix = "Create another; `cove sandbox info`, or a GET of it, tells why it ended, and its output can still be read."


class SandboxPausedError(ConflictError):
    """The sandbox is paused, and nothing can run in it."""

    code = "sandbox_paused"
    default_cause = "The sandbox is paused, and nothing can run in it."
    default_fix = "Resume it first."


class SandboxFullError(LimitReachedError):
    """The sandbox has no room left for the file: its storage limit, or the number of files that it may hold, is reached."""

    code = "sandbox_full"
    default_cause = "The sandbox has no room left for the file: its storage limit, or the number of files that it may hold, is reached."
    default_fix = "Remove files in it, or create a sandbox with larger resources.storageBytes."


class WrongFileKindError(ConflictError):
    """The path names another kind of thing than this needs: a directory where a file is needed, a file where a directory is, or links that go in circles."""

    code = "wrong_file_kind"
    default_cause = "The path names another kind of thing than this needs: a directory where a file is needed, a file where a directory is, or links that go in circles."
    default_fix = "Look at what it is (files/stat), and name what is meant."


class IdempotencyConflictError(ConflictError):
    """The Idempotency-Key was used for another request, or the first request with it is still being worked on."""

    code = "idempotency_conflict"
    default_cause = "The Idempotency-Key was used for another request, or the first request with it is still being worked on."
    default_fix = "Use a new key for a new request; repeat the same request a little later."


class ExecutorFullError(LimitReachedError):
    """The queue of POST /v1/execute is full, or the half of it that one tenant may fill: executions come in faster than they end."""

    code = "executor_full"
    default_cause = "The queue of POST /v1/execute is full, or the half of it that one tenant may fill: executions come in faster than they end."
    default_fix = "Wait for the time that Retry-After names, send fewer at one time, or have the operator raise executor.running and executor.queue."


class ContextDeadError(ConflictError):
    """The context has no kernel any more: it ended, or was ended, and the variables in it are gone."""

    code = "context_dead"
    default_cause = "The context has no kernel any more: it ended, or was ended, and the variables in it are gone."
    default_fix = "Restart the context and run what made its state again, or delete it and create another; the message says why the kernel ended."


class ForkUnsupportedError(ConflictError):
    """The context cannot be forked: its language has no fork that keeps the state, or its kernel runs more than one thread, of which a fork would carry over only one."""

    code = "fork_unsupported"
    default_cause = "The context cannot be forked: its language has no fork that keeps the state, or its kernel runs more than one thread, of which a fork would carry over only one."
    default_fix = "End the threads that the message names and fork again; for those of numeric libraries create the context with OPENBLAS_NUM_THREADS=1 and OMP_NUM_THREADS=1 in its env. Otherwise create another context and run what made the state again."


BY_CODE: Dict[str, Type[CoveError]] = {
    "invalid_request": InvalidRequestError,
    "bad_usage": BadUsageError,
    "forbidden": ForbiddenError,
    "not_found": NotFoundError,
    "conflict": ConflictError,
    "service_unavailable": ServiceUnavailableError,
    "limit_reached": LimitReachedError,
    "timeout": TimedOutError,
    "internal_error": InternalError,
    "internal_bug": InternalBugError,
    "sandbox_lost": SandboxLostError,
    "protocol_error": ProtocolError,
    "version_mismatch": VersionMismatchError,
    "level_unavailable": LevelUnavailableError,
    "wall_missing": WallMissingError,
    "no_namespaces": NoNamespacesError,
    "no_cgroup": NoCgroupError,
    "no_landlock": NoLandlockError,
    "limit_not_enforced": LimitNotEnforcedError,
    "program_not_found": ProgramNotFoundError,
    "program_not_executable": ProgramNotExecutableError,
    "runtime_not_found": RuntimeNotFoundError,
    "bind_source_unreadable": BindSourceUnreadableError,
    "bind_target_refused": BindTargetRefusedError,
    "workspace_refused": WorkspaceRefusedError,
    "disk_full": DiskFullError,
    "process_limit_reached": ProcessLimitReachedError,
    "runtime_program_missing": RuntimeProgramMissingError,
    "not_supported": NotSupportedError,
    "policy_not_found": PolicyNotFoundError,
    "policy_syntax": PolicySyntaxError,
    "policy_unknown_key": PolicyUnknownKeyError,
    "policy_bad_value": PolicyBadValueError,
    "policy_not_supported": PolicyNotSupportedError,
    "policy_below_floor": PolicyBelowFloorError,
    "policy_program_missing": PolicyProgramMissingError,
    "probe_program_missing": ProbeProgramMissingError,
    "config_syntax": ConfigSyntaxError,
    "config_unknown_key": ConfigUnknownKeyError,
    "config_bad_value": ConfigBadValueError,
    "config_unsafe_file": ConfigUnsafeFileError,
    "state_dir_unusable": StateDirUnusableError,
    "descriptors_exhausted": DescriptorsExhaustedError,
    "address_in_use": AddressInUseError,
    "server_running": ServerRunningError,
    "tls_files_unusable": TlsFilesUnusableError,
    "https_required": HttpsRequiredError,
    "server_not_trusted": ServerNotTrustedError,
    "program_missing": ProgramMissingError,
    "server_unreachable": ServerUnreachableError,
    "connection_lost": ConnectionLostError,
    "unauthorized": UnauthorizedError,
    "user_removed": UserRemovedError,
    "tenant_suspended": TenantSuspendedError,
    "quota_exceeded": QuotaExceededError,
    "template_in_use": TemplateInUseError,
    "last_admin": LastAdminError,
    "issuer_unreachable": IssuerUnreachableError,
    "rate_limited": RateLimitedError,
    "audit_unavailable": AuditUnavailableError,
    "store_full": StoreFullError,
    "store_corrupt": StoreCorruptError,
    "store_failed": StoreFailedError,
    "store_in_use": StoreInUseError,
    "store_too_new": StoreTooNewError,
    "script_not_found": ScriptNotFoundError,
    "bind_source_refused": BindSourceRefusedError,
    "malformed_request": MalformedRequestError,
    "route_not_found": RouteNotFoundError,
    "method_not_allowed": MethodNotAllowedError,
    "not_implemented": NotImplementedError,
    "request_timeout": RequestTimeoutError,
    "precondition_failed": PreconditionFailedError,
    "body_too_large": BodyTooLargeError,
    "uri_too_long": UriTooLongError,
    "unsupported_media_type": UnsupportedMediaTypeError,
    "range_not_satisfiable": RangeNotSatisfiableError,
    "expectation_failed": ExpectationFailedError,
    "host_not_allowed": HostNotAllowedError,
    "origin_not_allowed": OriginNotAllowedError,
    "upgrade_required": UpgradeRequiredError,
    "headers_too_large": HeadersTooLargeError,
    "budget_exceeded": BudgetExceededError,
    "client_gone": ClientGoneError,
    "sandbox_ended": SandboxEndedError,
    "sandbox_paused": SandboxPausedError,
    "sandbox_full": SandboxFullError,
    "wrong_file_kind": WrongFileKindError,
    "idempotency_conflict": IdempotencyConflictError,
    "executor_full": ExecutorFullError,
    "context_dead": ContextDeadError,
    "fork_unsupported": ForkUnsupportedError,
}

__all__ = [
    "BY_CODE",
    "CoveError",
    "ExecutionFailedError",
    "LostError",
    "WaitTimeoutError",
    "InvalidRequestError",
    "BadUsageError",
    "ForbiddenError",
    "NotFoundError",
    "ConflictError",
    "ServiceUnavailableError",
    "LimitReachedError",
    "TimedOutError",
    "InternalError",
    "InternalBugError",
    "SandboxLostError",
    "ProtocolError",
    "VersionMismatchError",
    "LevelUnavailableError",
    "WallMissingError",
    "NoNamespacesError",
    "NoCgroupError",
    "NoLandlockError",
    "LimitNotEnforcedError",
    "ProgramNotFoundError",
    "ProgramNotExecutableError",
    "RuntimeNotFoundError",
    "BindSourceUnreadableError",
    "BindTargetRefusedError",
    "WorkspaceRefusedError",
    "DiskFullError",
    "ProcessLimitReachedError",
    "RuntimeProgramMissingError",
    "NotSupportedError",
    "PolicyNotFoundError",
    "PolicySyntaxError",
    "PolicyUnknownKeyError",
    "PolicyBadValueError",
    "PolicyNotSupportedError",
    "PolicyBelowFloorError",
    "PolicyProgramMissingError",
    "ProbeProgramMissingError",
    "ConfigSyntaxError",
    "ConfigUnknownKeyError",
    "ConfigBadValueError",
    "ConfigUnsafeFileError",
    "StateDirUnusableError",
    "DescriptorsExhaustedError",
    "AddressInUseError",
    "ServerRunningError",
    "TlsFilesUnusableError",
    "HttpsRequiredError",
    "ServerNotTrustedError",
    "ProgramMissingError",
    "ServerUnreachableError",
    "ConnectionLostError",
    "UnauthorizedError",
    "UserRemovedError",
    "TenantSuspendedError",
    "QuotaExceededError",
    "TemplateInUseError",
    "LastAdminError",
    "IssuerUnreachableError",
    "RateLimitedError",
    "AuditUnavailableError",
    "StoreFullError",
    "StoreCorruptError",
    "StoreFailedError",
    "StoreInUseError",
    "StoreTooNewError",
    "ScriptNotFoundError",
    "BindSourceRefusedError",
    "MalformedRequestError",
    "RouteNotFoundError",
    "MethodNotAllowedError",
    "NotImplementedError",
    "RequestTimeoutError",
    "PreconditionFailedError",
    "BodyTooLargeError",
    "UriTooLongError",
    "UnsupportedMediaTypeError",
    "RangeNotSatisfiableError",
    "ExpectationFailedError",
    "HostNotAllowedError",
    "OriginNotAllowedError",
    "UpgradeRequiredError",
    "HeadersTooLargeError",
    "BudgetExceededError",
    "ClientGoneError",
    "SandboxEndedError",
    "SandboxPausedError",
    "SandboxFullError",
    "WrongFileKindError",
    "IdempotencyConflictError",
    "ExecutorFullError",
    "ContextDeadError",
    "ForkUnsupportedError",
]
