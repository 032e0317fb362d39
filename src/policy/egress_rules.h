/* egress_rules.h - what a sandbox may reach: ordered rules over name or address, port, and, where a
 * request is read in clear, method and path.
 *
 * The first rule that matches decides; without a match the answer is no. Rules have one canonical
 * text, which specs, messages, rows and receipts carry, one rule in a line:
 *
 *     allow pypi.org
 *     allow *.example.org:443
 *     deny files.example.org:*
 *     allow api.example.org:80 methods=GET,HEAD path=/v1/images
 *     allow 192.0.2.0/24:5432
 *     allow [2001:db8::/32]:443
 *     allow preset:pypi
 *     secret openai api.openai.com:443 header=Authorization format=Bearer%20{}
 *
 * A target without a port means 80 and 443; ":*" is every port, and "80,443,8000-8100" a list. A
 * rule with methods or a path needs a port that is read in clear, so not 443. A preset is a row of
 * policy/egress_presets.def. In `path` and `format`, spaces and '%' are percent-encoded; a '*' at
 * the end of a path stands for any rest. A secret line makes http://NAME.secret.cove/ inside the
 * sandbox a way to that host with the secret added; it allows that way only. Names and patterns are
 * those of policy/hostname.h. */
#pragma once

#include "core/base/base.h"
#include "core/base/buf.h"
#include "core/base/err.h"
#include "policy/hostname.h"
#include "policy/ip_address.h"

#define EGRESS_RULES_MAX 256
#define EGRESS_RULES_TEXT_LIMIT (32 * KIB) /* of the canonical text */
#define EGRESS_RULE_PORTS_MAX 8
#define EGRESS_RULE_PATH_MAX 255
#define EGRESS_RULE_SECRETS_MAX 16
#define EGRESS_SECRET_SUFFIX ".secret.cove"

enum egress_action { EGRESS_DENY, EGRESS_ALLOW };

struct egress_ports {
    uint16_t first, last;
};

struct egress_request_match {
    uint32_t methods;                    /* bit per entry of egress_methods; 0: every method */
    char path[EGRESS_RULE_PATH_MAX + 1]; /* "": every path; a final '*' stands for any rest */
};

struct egress_rule {
    enum egress_action action;
    bool is_prefix;              /* `prefix` holds the target; otherwise `host` */
    char host[HOSTNAME_MAX + 1]; /* a pattern of hostname.h */
    struct ip_prefix prefix;
    struct egress_ports ports[EGRESS_RULE_PORTS_MAX];
    uint32_t nports; /* 0: 80 and 443 */
    struct egress_request_match request;
    char preset[32]; /* the preset that the rule comes from; "": none */
};

struct egress_secret_rule {
    char name[64]; /* letters, digits, '-' and '_'; lower case, because it is a label of a host name */
    char host[HOSTNAME_MAX + 1];
    uint16_t port;
    char header[64];
    char format[128]; /* holds "{}" once, which stands for the value */
    struct egress_request_match request;
};

struct egress_rules {
    struct egress_rule *rules; /* presets are expanded */
    size_t nrules;
    struct egress_secret_rule *secrets;
    size_t nsecrets;
};

extern const char *const egress_methods[]; /* "GET", "HEAD", ...; NULL-terminated */

/* Reads canonical text, and also text with other spacing, order of attributes and letter case. */
int egress_rules_parse(const char *text, size_t len, struct egress_rules **ret, struct err *err);
void egress_rules_free(struct egress_rules *r);
DEFINE_AUTO(egress_rules, egress_rules_free);
/* The canonical text. Presets are written as presets. */
void egress_rules_write(const struct egress_rules *r, struct buf *out);
/* Adds one canonical line from fields of a request or a flag, or refuses them. Lines are separated
 * by a line feed, without one at the end. `methods` (NULL-terminated) and `path` may be NULL.
 * Rules are counted, and presets expanded, only by egress_rules_parse(). */
int egress_rules_add_line(struct buf *text, enum egress_action action, const char *target, const char *const *methods,
                          const char *path, struct err *err);
struct egress_secret_fields {
    const char *name, *host; /* host may end with ":PORT"; 443 without it */
    const char *header;      /* NULL: Authorization */
    const char *format;      /* NULL: "Bearer {}" for Authorization, "{}" for other headers */
    const char *const *methods;
    const char *path;
};
int egress_rules_add_secret(struct buf *text, const struct egress_secret_fields *f, struct err *err);

/* --- decisions --- */

struct egress_target {
    const char *host;          /* normalised; "": only the address is known, which the caller gave literally */
    struct ip_address address; /* valid if host is "" */
    uint16_t port;
};

enum egress_verdict {
    EGRESS_REFUSED,
    EGRESS_ALLOWED,
    EGRESS_NEEDS_REQUEST, /* a rule with a method or path may match: read the request, then ask again */
};

struct egress_decision {
    enum egress_verdict verdict;
    int rule; /* index of the rule that decided; -1: none matched */
};

/* method and path are both NULL while the request is not known. The path is that of
 * http1_path_normalize(); a request whose path it refuses must be refused when the verdict without
 * it is EGRESS_NEEDS_REQUEST. NAME.secret.cove is allowed on port 80 if a secret line has that
 * name; every other name below secret.cove is refused, whatever the rules say. */
struct egress_decision egress_rules_decide(const struct egress_rules *r, const struct egress_target *t,
                                           const char *method, const char *path);
/* Rules that deny a prefix hold for a name too, once it is resolved to `a`: the index of the first
 * one before the rule that allows the target without its request; -1: none. */
int egress_rules_deny_of_address(const struct egress_rules *r, const struct egress_target *t,
                                 const struct ip_address *a);
/* Whether a name may resolve: some port and request of it could be allowed. */
bool egress_rules_may_resolve(const struct egress_rules *r, const char *host);
/* The secret whose name is the first label of NAME.secret.cove; NULL: none. */
const struct egress_secret_rule *egress_rules_find_secret(const struct egress_rules *r, const char *host);
bool egress_request_matches(const struct egress_request_match *m, const char *method, const char *path);
/* A short reason for a refusal, and the smallest rule that would allow it: "no rule allows
 * example.org:443" and "allow example.org:443". Printable ASCII. */
void egress_rules_explain(const struct egress_rules *r, const struct egress_target *t, struct egress_decision d,
                          struct buf *reason, struct buf *fix);
