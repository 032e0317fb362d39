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


class BadUsageError(InvalidRequestError):
    """The command line is not valid."""

    code = "bad_usage"


class ForbiddenError(CoveError):
    """The request is valid, but it is not permitted."""

    code = "forbidden"


class NotFoundError(CoveError):
    """The named object does not exist."""

    code = "not_found"


class ConflictError(CoveError):
    """The object already exists, or its state does not allow this request now."""

    code = "conflict"


class ServiceUnavailableError(CoveError):
    """The server cannot accept this request now."""

    code = "service_unavailable"


class LimitReachedError(CoveError):
    """A limit of the sandbox or of the host is reached."""

    code = "limit_reached"


class TimedOutError(CoveError):
    """The time limit expired before the work was finished."""

    code = "timeout"


class InternalError(CoveError):
    """The operating system refused an operation that cove needs."""

    code = "internal_error"


class InternalBugError(InternalError):
    """cove reached a state that its code is meant to make impossible."""

    code = "internal_bug"
    default_cause = "cove reached a state that its code is meant to make impossible."
    default_fix = "Please report the message and the command or request that caused it."


class SandboxLostError(LostError):
    """The process that held the sandbox ended unexpectedly, and the sandbox ended with it."""

    code = "sandbox_lost"
    default_cause = "The process that held the sandbox ended unexpectedly, and the sandbox ended with it."
    default_fix = "Run it again; if this happens again, report it together with the kernel log (dmesg) of that time."


class ProtocolError(InvalidRequestError):
    """The peer of a connection sent a message that the protocol does not allow."""

    code = "protocol_error"
    default_cause = "The peer of a connection sent a message that the protocol does not allow."
    default_fix = "If both sides are the same version of cove, report it; otherwise install matching versions."


class VersionMismatchError(InvalidRequestError):
    """Two components of cove have different versions."""

    code = "version_mismatch"
    default_cause = "Two components of cove have different versions."
    default_fix = "Install all components of cove from the same release, then restart it."


class LevelUnavailableError(ForbiddenError):
    """The requested isolation level is not available on this host."""

    code = "level_unavailable"


class WallMissingError(ForbiddenError):
    """This host cannot provide a wall of the sandbox, and cove never runs code without that
    wall."""

    code = "wall_missing"
    default_cause = "This host cannot provide a wall of the sandbox, and cove never runs code without that wall."
    default_fix = "Provide what the message names (kernel, privilege or setting); a server that was not started by root needs the setting limits.enforced: false."


class NoNamespacesError(ForbiddenError):
    """This host does not let cove create the namespaces that a sandbox needs."""

    code = "no_namespaces"
    default_cause = "This host does not let cove create the namespaces that a sandbox needs."
    default_fix = "Change what the message names. In general cove needs a kernel with user namespaces (sysctl user.max_user_namespaces above 0), and either root with its capabilities or a user with the right to create user namespaces."


class NoCgroupError(ForbiddenError):
    """cove found no cgroup controller that it may write, so it cannot enforce limits."""

    code = "no_cgroup"
    default_cause = "cove found no cgroup controller that it may write, so it cannot enforce limits."
    default_fix = "Mount the cgroup file system, or run as root; see docs/limits.md."


class NoLandlockError(ForbiddenError):
    """The kernel has no Landlock, which level standard requires."""

    code = "no_landlock"
    default_cause = "The kernel has no Landlock, which level standard requires."
    default_fix = "Use Linux 5.13 or newer with Landlock enabled (lsm=landlock,...)."


class LimitNotEnforcedError(ForbiddenError):
    """This host cannot enforce a limit."""

    code = "limit_not_enforced"
    default_cause = "This host cannot enforce a limit."
    default_fix = "Enable the cgroup controller that the message names."


class ProgramNotFoundError(NotFoundError):
    """The program does not exist in the sandbox."""

    code = "program_not_found"
    default_cause = "The program does not exist in the sandbox."
    default_fix = "cove looks for programs in /usr/local/bin, /usr/bin and /bin of the host; give a path that exists there, or write the program into the sandbox."


class ProgramNotExecutableError(ForbiddenError):
    """The program exists but cannot be executed."""

    code = "program_not_executable"
    default_cause = "The program exists but cannot be executed."
    default_fix = "Make the file executable, or run it with its interpreter."


class RuntimeNotFoundError(NotFoundError):
    """cove does not know the runtime or language, or it is not installed on this host; the message
    says which."""

    code = "runtime_not_found"


class BindSourceUnreadableError(InvalidRequestError):
    """The source of a bind mount cannot be opened."""

    code = "bind_source_unreadable"


class BindTargetRefusedError(InvalidRequestError):
    """The target of a bind mount is not allowed."""

    code = "bind_target_refused"
    default_cause = "The target of a bind mount is not allowed."
    default_fix = "Bind onto an existing path of the root, or below /mnt or /workspace."


class WorkspaceRefusedError(InvalidRequestError):
    """The directory cannot be used as /workspace."""

    code = "workspace_refused"
    default_cause = "The directory cannot be used as /workspace."
    default_fix = "Use a directory on a file system that supports idmapped mounts (ext4, xfs, btrfs, tmpfs), or DIR:cow."


class DiskFullError(LimitReachedError):
    """The host has no disk space or memory left for the sandbox."""

    code = "disk_full"
    default_cause = "The host has no disk space or memory left for the sandbox."
    default_fix = "Free disk space or memory on the host."


class ProcessLimitReachedError(LimitReachedError):
    """The sandbox is at its process limit, so no more processes can be started in it."""

    code = "process_limit_reached"
    default_cause = "The sandbox is at its process limit, so no more processes can be started in it."
    default_fix = "Start fewer processes at the same time, or create the sandbox with a higher limit of processes (pids)."


class TemplateUnavailableError(ForbiddenError):
    """The template preloads modules that the server's host does not have."""

    code = "template_unavailable"
    default_cause = "The template preloads modules that the server's host does not have."
    default_fix = "Install the packages that the message names on the server's host, or use another template; GET /v1/templates lists the available ones. No restart is needed."


class RuntimeProgramMissingError(InternalError):
    """cove-runtime, the program that becomes PID 1 of a sandbox, was not found next to cove."""

    code = "runtime_program_missing"
    default_cause = "cove-runtime, the program that becomes PID 1 of a sandbox, was not found next to cove."
    default_fix = "Reinstall cove, or set COVE_LIBEXEC to the directory that holds cove-runtime."


class DriverNotFoundError(NotFoundError):
    """cove has no driver of this name."""

    code = "driver_not_found"


class DriverUnavailableError(ForbiddenError):
    """The driver cannot make sandboxes on this host."""

    code = "driver_unavailable"


class DriverUnsupportedError(ForbiddenError):
    """The driver cannot do what the request or the policy asks for."""

    code = "driver_unsupported"


class DriverNotAllowedError(ForbiddenError):
    """The operator does not allow this driver."""

    code = "driver_not_allowed"


class NotSupportedError(ForbiddenError):
    """This version of cove does not support this combination."""

    code = "not_supported"


class EgressRuleInvalidError(InvalidRequestError):
    """A rule about the network is malformed, or it could never have an effect."""

    code = "egress_rule_invalid"


class NetworkNotEnabledError(ConflictError):
    """The sandbox was created without a network, and a network cannot be added to a sandbox."""

    code = "network_not_enabled"


class NetworkUnavailableError(ServiceUnavailableError):
    """The sandbox needs a network, and the egress proxy of this host does not run or cannot serve
    it."""

    code = "network_unavailable"


class EgressDeniedError(ForbiddenError):
    """The egress proxy answers a program in a sandbox: the rules of the sandbox do not allow this
    request."""

    code = "egress_denied"


class DestinationUnreachableError(LostError):
    """The egress proxy answers a program in a sandbox: the rules allow the host, but it cannot be
    reached."""

    code = "destination_unreachable"


class DestinationTimeoutError(TimedOutError):
    """The egress proxy answers a program in a sandbox: the rules allow the host, but it does not
    answer in time."""

    code = "destination_timeout"


class DestinationProtocolError(LostError):
    """The egress proxy answers a program in a sandbox: the destination sent an answer that the
    proxy does not pass on."""

    code = "destination_protocol"


class CodeRefusedError(ForbiddenError):
    """The simple tier does not run this code, because it uses something that the tier does not give
    it. Nothing of the code ran."""

    code = "code_refused"
    default_cause = "The simple tier does not run this code, because it uses something that the tier does not give it. Nothing of the code ran."
    default_fix = "Change what the report names, or repeat the request with \"tier\": \"full\"."


class UnsupportedLanguageError(InvalidRequestError):
    """The tier does not run this language."""

    code = "unsupported_language"


class CalculationSyntaxError(InvalidRequestError):
    """The expression is not a formula that the calculator knows, or it has two readings."""

    code = "calculation_syntax"


class DivisionByZeroError(InvalidRequestError):
    """The expression divides by zero."""

    code = "division_by_zero"


class CalculationUndefinedError(InvalidRequestError):
    """An operation has no real result for its operands, such as the square root of a negative
    number, or its result cannot be decided."""

    code = "calculation_undefined"


class CalculationTooLargeError(LimitReachedError):
    """The expression, or a number that it computes, is larger than the calculator permits."""

    code = "calculation_too_large"


class PolicyNotFoundError(NotFoundError):
    """No built-in policy and no file has this name."""

    code = "policy_not_found"


class PolicySyntaxError(InvalidRequestError):
    """The policy file is not well-formed YAML or JSON."""

    code = "policy_syntax"


class PolicyUnknownKeyError(InvalidRequestError):
    """The policy file has an unknown key, so the rule that its author intended would not be
    enforced."""

    code = "policy_unknown_key"


class PolicyBadValueError(InvalidRequestError):
    """A value in the policy file is malformed, out of range or of the wrong type."""

    code = "policy_bad_value"


class PolicyNotSupportedError(ForbiddenError):
    """The policy requires something that this version of cove cannot enforce, so the whole policy
    is refused."""

    code = "policy_not_supported"


class PolicyBelowFloorError(ForbiddenError):
    """The policy or a flag requests more than the operator of this host allows."""

    code = "policy_below_floor"


class PolicyProgramMissingError(InternalError):
    """cove-policy, the program that reads policy files, was not found next to cove."""

    code = "policy_program_missing"
    default_cause = "cove-policy, the program that reads policy files, was not found next to cove."
    default_fix = "Reinstall cove, or set COVE_LIBEXEC to the directory that holds cove-policy."


class ProbeProgramMissingError(InternalError):
    """cove-probe, the program that attacks a sandbox for cove doctor, was not found next to
    cove."""

    code = "probe_program_missing"
    default_cause = "cove-probe, the program that attacks a sandbox for cove doctor, was not found next to cove."
    default_fix = "Reinstall cove, or set COVE_LIBEXEC to the directory that holds cove-probe."


class ConfigSyntaxError(InvalidRequestError):
    """The server's configuration file is not well-formed YAML or JSON."""

    code = "config_syntax"


class ConfigUnknownKeyError(InvalidRequestError):
    """The configuration has an unknown setting, so the behaviour that its author intended would not
    take effect."""

    code = "config_unknown_key"


class ConfigBadValueError(InvalidRequestError):
    """The value of a setting is malformed or out of range."""

    code = "config_bad_value"


class ConfigUnsafeFileError(ForbiddenError):
    """A user without control of the server can write its configuration file."""

    code = "config_unsafe_file"
    default_cause = "A user without control of the server can write its configuration file."
    default_fix = "Make root or yourself the owner of the file, and remove the write permission of all others: chmod go-w FILE."


class StateDirUnusableError(ForbiddenError):
    """The server cannot use one of its directories: it cannot be created or written, or it belongs
    to another user."""

    code = "state_dir_unusable"
    default_cause = "The server cannot use one of its directories: it cannot be created or written, or it belongs to another user."
    default_fix = "Give it to the user that the message names (chown), or choose another directory with --state-dir."


class DescriptorsExhaustedError(ServiceUnavailableError):
    """The server has as many files and connections open as the system allows, and could not open
    another. No data is lost."""

    code = "descriptors_exhausted"
    default_cause = "The server has as many files and connections open as the system allows, and could not open another. No data is lost."
    default_fix = "Try again after a moment. If it persists, the operator raises the limit of open files (LimitNOFILE of the service, or ulimit -n), or lowers http.maxConnections and webSocket.maxConnections."


class AddressInUseError(ServiceUnavailableError):
    """Another program already listens on the server's address."""

    code = "address_in_use"
    default_cause = "Another program already listens on the server's address."
    default_fix = "Stop it, or choose another address with --listen."


class ServerRunningError(ServiceUnavailableError):
    """Another cove server uses the same directories."""

    code = "server_running"
    default_cause = "Another cove server uses the same directories."
    default_fix = "Stop the other server, or give this one a --state-dir of its own."


class TlsFilesUnusableError(InvalidRequestError):
    """The server's TLS certificate or key cannot be read or used."""

    code = "tls_files_unusable"
    default_cause = "The server's TLS certificate or key cannot be read or used."
    default_fix = "Provide PEM files: the certificate with its chain in tls.certificate, and its key, without a password, in tls.key; see docs/tls.md."


class HttpsRequiredError(InvalidRequestError):
    """The request was sent without encryption to an address where the server expects TLS."""

    code = "https_required"
    default_cause = "The request was sent without encryption to an address where the server expects TLS."
    default_fix = "Use https:// instead of http:// in the address."


class ServerNotTrustedError(ForbiddenError):
    """This machine does not trust the server's certificate: it has expired, names another host, or
    is signed by an unknown authority."""

    code = "server_not_trusted"
    default_cause = "This machine does not trust the server's certificate: it has expired, names another host, or is signed by an unknown authority."
    default_fix = "Name the authority's certificate with --cacert or COVE_CACERT, or have the server's certificate renewed."


class ProgramMissingError(InternalError):
    """A program that this command of cove needs was not found next to cove."""

    code = "program_missing"
    default_cause = "A program that this command of cove needs was not found next to cove."
    default_fix = "Reinstall cove, or set COVE_LIBEXEC to the directory that holds it."


class ServerUnreachableError(LostError):
    """No cove server answered at the address."""

    code = "server_unreachable"
    default_cause = "No cove server answered at the address."
    default_fix = "Start one with `cove serve`, or give the right address with --url or COVE_URL."


class ConnectionLostError(LostError):
    """The connection to the server ended in the middle of a response."""

    code = "connection_lost"
    default_cause = "The connection to the server ended in the middle of a response."
    default_fix = "Try again; programs in a sandbox continue without the connection, and their output is kept."


class UnauthorizedError(ForbiddenError):
    """The request has no key, or its key is unknown, expired or revoked."""

    code = "unauthorized"
    default_cause = "The request has no key, or its key is unknown, expired or revoked."
    default_fix = "Send a valid key as `Authorization: Bearer cove_...`; `cove key create` creates one."


class UserRemovedError(ForbiddenError):
    """The token is valid, but an admin removed its user from the tenant. A new token does not
    create a removed user again."""

    code = "user_removed"
    default_cause = "The token is valid, but an admin removed its user from the tenant. A new token does not create a removed user again."
    default_fix = "Ask an admin of the tenant to add the user again (`cove user add`)."


class TenantSuspendedError(ForbiddenError):
    """The operator of the server suspended the tenant of this key. Everything that ran in the
    tenant was ended."""

    code = "tenant_suspended"
    default_cause = "The operator of the server suspended the tenant of this key. Everything that ran in the tenant was ended."
    default_fix = "Ask the operator to resume the tenant (`cove tenant set`)."


class SecretNotFoundError(NotFoundError):
    """The tenant has no secret of this name."""

    code = "secret_not_found"


class SecretHostRefusedError(ForbiddenError):
    """The secret may be sent to other hosts only."""

    code = "secret_host_refused"


class SecretUnreadableError(InternalError):
    """The value of the secret cannot be decrypted, because the key file of the server is not the
    one that encrypted it."""

    code = "secret_unreadable"
    default_cause = "The value of the secret cannot be decrypted, because the key file of the server is not the one that encrypted it."
    default_fix = "Restore secret.key into the state directory of the server, or set the secret again."


class QuotaExceededError(LimitReachedError):
    """The tenant has used up a quota: sandboxes, processors, memory, storage, or executions per
    hour."""

    code = "quota_exceeded"
    default_cause = "The tenant has used up a quota: sandboxes, processors, memory, storage, or executions per hour."
    default_fix = "End what is no longer needed, wait for the time in Retry-After if the response has one, or ask the operator of the server for a larger quota; `cove tenant info` or GET /v1/tenants/{tenant} shows the usage."


class TemplateInUseError(ConflictError):
    """A pool uses the template and could not be refilled without it."""

    code = "template_in_use"
    default_cause = "A pool uses the template and could not be refilled without it."
    default_fix = "Remove the pool that the message names (`cove pool rm`), or give the pool another template; then delete this template."


class LastAdminError(ConflictError):
    """This change would leave the tenant without an admin."""

    code = "last_admin"
    default_cause = "This change would leave the tenant without an admin."
    default_fix = "Make another user an admin first, or ask the operator of the server."


class IssuerUnreachableError(ServiceUnavailableError):
    """The request carries a token of an identity provider, and the server could not fetch the
    provider's keys to verify it."""

    code = "issuer_unreachable"
    default_cause = "The request carries a token of an identity provider, and the server could not fetch the provider's keys to verify it."
    default_fix = "Try again after a moment; the operator finds the reason in the server's log and the address in the setting auth.jwt.jwksUrl."


class RateLimitedError(ServiceUnavailableError):
    """There were too many requests with this key, or too many wrong keys from this address."""

    code = "rate_limited"
    default_cause = "There were too many requests with this key, or too many wrong keys from this address."
    default_fix = "Wait for the time that Retry-After gives."


class AuditUnavailableError(ServiceUnavailableError):
    """The audit log cannot be written (for example, its disk is full), and the server changes
    nothing that it cannot record."""

    code = "audit_unavailable"
    default_cause = "The audit log cannot be written (for example, its disk is full), and the server changes nothing that it cannot record."
    default_fix = "Free space on the disk of the server's state directory, or look for the reason in the server's log; the server then continues without a restart."


class StoreFullError(LimitReachedError):
    """The disk with the server's database is full, so the server cannot store anything new."""

    code = "store_full"
    default_cause = "The disk with the server's database is full, so the server cannot store anything new."
    default_fix = "Free space on that disk, or let `cove gc` remove old data; the server then continues without a restart."


class StoreCorruptError(InternalError):
    """The server's database is damaged, or the file is not a database of cove."""

    code = "store_corrupt"
    default_cause = "The server's database is damaged, or the file is not a database of cove."
    default_fix = "Stop the server and restore a backup with `cove restore FILE`."


class StoreFailedError(InternalError):
    """The server's database could not be read or written."""

    code = "store_failed"
    default_cause = "The server's database could not be read or written."
    default_fix = "Check the disk of the server's state directory: its permissions, and whether it is mounted read-only; the server's log has the reason."


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
    default_fix = "Check the path: a script is read from this host before the sandbox is created. To run a program of the sandbox, write it after '--'."


class BindSourceRefusedError(ForbiddenError):
    """This source may never be mounted into a sandbox."""

    code = "bind_source_refused"
    default_cause = "This source may never be mounted into a sandbox."
    default_fix = "Name a directory below it that contains only files."


class MalformedRequestError(InvalidRequestError):
    """The request is not well-formed HTTP, or it is ambiguous."""

    code = "malformed_request"
    default_cause = "The request is not well-formed HTTP, or it is ambiguous."
    default_fix = "Use an unmodified HTTP client; if there is a proxy, check what it forwards."


class RouteNotFoundError(NotFoundError):
    """The server has no resource at this path."""

    code = "route_not_found"


class MethodNotAllowedError(InvalidRequestError):
    """The path exists, but it does not support this method."""

    code = "method_not_allowed"


class NotImplementedError(InvalidRequestError):
    """The request uses a method or a transfer coding that this server does not support."""

    code = "not_implemented"
    default_cause = "The request uses a method or a transfer coding that this server does not support."
    default_fix = "Use GET, POST, PUT, PATCH or DELETE, and no transfer coding except chunked."


class RequestTimeoutError(TimedOutError):
    """The rest of the request did not arrive in time."""

    code = "request_timeout"


class PreconditionFailedError(ConflictError):
    """The resource has changed since the version that the request names."""

    code = "precondition_failed"


class BodyTooLargeError(LimitReachedError):
    """The body of the request is larger than this path accepts."""

    code = "body_too_large"


class UriTooLongError(LimitReachedError):
    """The request line is longer than the server accepts."""

    code = "uri_too_long"


class UnsupportedMediaTypeError(InvalidRequestError):
    """The body has a type or an encoding that this path does not accept."""

    code = "unsupported_media_type"


class RangeNotSatisfiableError(InvalidRequestError):
    """The requested range lies outside of the content."""

    code = "range_not_satisfiable"


class ExpectationFailedError(InvalidRequestError):
    """The request has an Expect header that the server does not support."""

    code = "expectation_failed"


class HostNotAllowedError(ForbiddenError):
    """The request is addressed to a host name that this server does not accept. Malicious web pages
    do this to reach local servers through a browser."""

    code = "host_not_allowed"
    default_cause = "The request is addressed to a host name that this server does not accept. Malicious web pages do this to reach local servers through a browser."
    default_fix = "Use the server's address or localhost, or add the name to the server's list of hosts."


class OriginNotAllowedError(ForbiddenError):
    """The request comes from a web page whose origin may not call this server."""

    code = "origin_not_allowed"
    default_cause = "The request comes from a web page whose origin may not call this server."
    default_fix = "Add the origin to the server's list of origins, if the web page is yours."


class UpgradeRequiredError(InvalidRequestError):
    """The path is a WebSocket, but the request is not a valid WebSocket handshake."""

    code = "upgrade_required"
    default_cause = "The path is a WebSocket, but the request is not a valid WebSocket handshake."
    default_fix = "Connect with a WebSocket client (version 13); for plain HTTP, use the executions of the sandbox."


class HeadersTooLargeError(LimitReachedError):
    """The headers of the request are larger or more numerous than the server accepts."""

    code = "headers_too_large"


class BudgetExceededError(LimitReachedError):
    """The tenant has used up its budget for this day or month."""

    code = "budget_exceeded"


class ClientGoneError(LostError):
    """The client disconnected before its request was complete."""

    code = "client_gone"


class SandboxEndedError(NotFoundError):
    """The sandbox has ended; it accepts no more requests."""

    code = "sandbox_ended"
    default_cause = "The sandbox has ended; it accepts no more requests."
    default_fix = "Create another sandbox; `cove sandbox info` or a GET of the sandbox gives the reason for its end, and its output can still be read."


class SandboxPausedError(ConflictError):
    """The sandbox is paused, so nothing can run in it."""

    code = "sandbox_paused"


class SandboxFullError(LimitReachedError):
    """The sandbox has no space left for the file: its storage limit, or its limit on the number of
    files, is reached."""

    code = "sandbox_full"
    default_cause = "The sandbox has no space left for the file: its storage limit, or its limit on the number of files, is reached."
    default_fix = "Remove files in it, or create a sandbox with larger resources.storageBytes."


class WrongFileKindError(ConflictError):
    """The path names another type of file than the request needs: a directory instead of a file, a
    file instead of a directory, or a loop of symbolic links."""

    code = "wrong_file_kind"


class IdempotencyConflictError(ConflictError):
    """The Idempotency-Key was used for a different request, or the first request with it is still
    in progress."""

    code = "idempotency_conflict"
    default_cause = "The Idempotency-Key was used for a different request, or the first request with it is still in progress."
    default_fix = "Use a new key for a new request; repeat the same request a little later."


class BusyError(ServiceUnavailableError):
    """The queue of POST /v1/execute is full, or the tenant has filled the half of it that one
    tenant may use: executions arrive faster than they end."""

    code = "busy"
    default_cause = "The queue of POST /v1/execute is full, or the tenant has filled the half of it that one tenant may use: executions arrive faster than they end."
    default_fix = "Wait for the time that Retry-After gives, send fewer requests at the same time, or have the operator raise executor.running and executor.queue."


class ContextDeadError(ConflictError):
    """The language kernel of the context has ended, and its variables are lost."""

    code = "context_dead"
    default_cause = "The language kernel of the context has ended, and its variables are lost."
    default_fix = "Restart the context and run the code that made its state again, or delete it and create another; the message says why the language kernel ended."


class ContextBusyError(LimitReachedError):
    """The context has as many running and waiting executions as it may have: its executions run one
    after another."""

    code = "context_busy"
    default_cause = "The context has as many running and waiting executions as it may have: its executions run one after another."
    default_fix = "Wait for one of them to end, or run the code beside them: with isolated: true, as a command, or in another context."


class ForkUnsupportedError(ConflictError):
    """The context cannot be forked: its language has no fork that keeps the state, or its language
    kernel runs more than one thread, of which a fork would keep only one."""

    code = "fork_unsupported"
    default_cause = "The context cannot be forked: its language has no fork that keeps the state, or its language kernel runs more than one thread, of which a fork would keep only one."
    default_fix = "End the threads that the message names and fork again; for threads of numeric libraries, create the context with OPENBLAS_NUM_THREADS=1 and OMP_NUM_THREADS=1 in its env. Otherwise create another context and run the code that made the state again."


class McpServerUnreachableError(LostError):
    """No MCP server answered at the address, or its program could not be started."""

    code = "mcp_server_unreachable"
    default_cause = "No MCP server answered at the address, or its program could not be started."
    default_fix = "Check the address and that the server runs; for a program, run the command by itself."


class McpServerEndedError(LostError):
    """The MCP server closed the connection or exited before it answered."""

    code = "mcp_server_ended"
    default_cause = "The MCP server closed the connection or exited before it answered."
    default_fix = "Start the server again; its output on standard error says why it exited."


class McpProtocolError(InvalidRequestError):
    """The MCP server sent something that the Model Context Protocol does not allow."""

    code = "mcp_protocol_error"
    default_cause = "The MCP server sent something that the Model Context Protocol does not allow."
    default_fix = "Check that the address or command is that of an MCP server, and report the message to its author."


class McpLimitExceededError(LimitReachedError):
    """The MCP server sent more than this client accepts, or does not read what it is sent."""

    code = "mcp_limit_exceeded"
    default_cause = "The MCP server sent more than this client accepts, or does not read what it is sent."
    default_fix = "Ask the server for less; docs/mcp-client.md lists the limits."


class McpRequestRefusedError(ForbiddenError):
    """The MCP server answered a request with an error."""

    code = "mcp_request_refused"


class McpNotSupportedError(ForbiddenError):
    """The MCP server does not support the method, or speaks no revision of the protocol that cove
    speaks."""

    code = "mcp_not_supported"


class McpInputRequiredError(ForbiddenError):
    """The MCP server asked a question during the call, and this client does not answer questions of
    that kind."""

    code = "mcp_input_required"
    default_cause = "The MCP server asked a question during the call, and this client does not answer questions of that kind."
    default_fix = "Answer it with --elicit, or call a tool that asks nothing."


class McpToolUnusableError(ForbiddenError):
    """The MCP server lists the tool with a definition that is not safe to use."""

    code = "mcp_tool_unusable"


class McpToolChangedError(ConflictError):
    """The MCP server changed the definition of the tool after it was listed, so the call was not
    sent."""

    code = "mcp_tool_changed"


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
    "template_unavailable": TemplateUnavailableError,
    "runtime_program_missing": RuntimeProgramMissingError,
    "driver_not_found": DriverNotFoundError,
    "driver_unavailable": DriverUnavailableError,
    "driver_unsupported": DriverUnsupportedError,
    "driver_not_allowed": DriverNotAllowedError,
    "not_supported": NotSupportedError,
    "egress_rule_invalid": EgressRuleInvalidError,
    "network_not_enabled": NetworkNotEnabledError,
    "network_unavailable": NetworkUnavailableError,
    "egress_denied": EgressDeniedError,
    "destination_unreachable": DestinationUnreachableError,
    "destination_timeout": DestinationTimeoutError,
    "destination_protocol": DestinationProtocolError,
    "code_refused": CodeRefusedError,
    "unsupported_language": UnsupportedLanguageError,
    "calculation_syntax": CalculationSyntaxError,
    "division_by_zero": DivisionByZeroError,
    "calculation_undefined": CalculationUndefinedError,
    "calculation_too_large": CalculationTooLargeError,
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
    "secret_not_found": SecretNotFoundError,
    "secret_host_refused": SecretHostRefusedError,
    "secret_unreadable": SecretUnreadableError,
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
    "busy": BusyError,
    "context_dead": ContextDeadError,
    "context_busy": ContextBusyError,
    "fork_unsupported": ForkUnsupportedError,
    "mcp_server_unreachable": McpServerUnreachableError,
    "mcp_server_ended": McpServerEndedError,
    "mcp_protocol_error": McpProtocolError,
    "mcp_limit_exceeded": McpLimitExceededError,
    "mcp_request_refused": McpRequestRefusedError,
    "mcp_not_supported": McpNotSupportedError,
    "mcp_input_required": McpInputRequiredError,
    "mcp_tool_unusable": McpToolUnusableError,
    "mcp_tool_changed": McpToolChangedError,
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
    "TemplateUnavailableError",
    "RuntimeProgramMissingError",
    "DriverNotFoundError",
    "DriverUnavailableError",
    "DriverUnsupportedError",
    "DriverNotAllowedError",
    "NotSupportedError",
    "EgressRuleInvalidError",
    "NetworkNotEnabledError",
    "NetworkUnavailableError",
    "EgressDeniedError",
    "DestinationUnreachableError",
    "DestinationTimeoutError",
    "DestinationProtocolError",
    "CodeRefusedError",
    "UnsupportedLanguageError",
    "CalculationSyntaxError",
    "DivisionByZeroError",
    "CalculationUndefinedError",
    "CalculationTooLargeError",
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
    "SecretNotFoundError",
    "SecretHostRefusedError",
    "SecretUnreadableError",
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
    "BusyError",
    "ContextDeadError",
    "ContextBusyError",
    "ForkUnsupportedError",
    "McpServerUnreachableError",
    "McpServerEndedError",
    "McpProtocolError",
    "McpLimitExceededError",
    "McpRequestRefusedError",
    "McpNotSupportedError",
    "McpInputRequiredError",
    "McpToolUnusableError",
    "McpToolChangedError",
]
