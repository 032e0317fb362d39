/* head.h - reads the head of one HTTP/1 message from a buffer, strictly.
 *
 * Input that two programs could read in two ways is refused: lines that do not end in CR LF, folded
 * fields, whitespace before a colon, control characters, more than one Content-Length or Host,
 * Content-Length together with Transfer-Encoding, transfer codings other than chunked, user
 * information and fragments in a target, and hosts with unusual characters. All texts of the
 * result point into the caller's buffer. */
#pragma once

#include "core/base/base.h"
#include "core/base/err.h"

#define HTTP1_HEAD_MAX (32 * KIB) /* with the empty line at its end */
#define HTTP1_FIELDS_MAX 100

enum http1_result {
    HTTP1_BAD = -1, /* `err` says why; the connection cannot be used any more */
    HTTP1_MORE = 0, /* call again when more bytes have arrived */
    HTTP1_DONE = 1,
};

struct http1_text {
    const char *data; /* without a NUL at its end */
    size_t len;
};

struct http1_field {
    struct http1_text name, value; /* the value without whitespace around it */
};

struct http1_fields {
    struct http1_field list[HTTP1_FIELDS_MAX];
    size_t count;
};

enum http1_form {
    HTTP1_FORM_ORIGIN,    /* /path?query */
    HTTP1_FORM_ABSOLUTE,  /* http://host:port/path?query, for a proxy */
    HTTP1_FORM_AUTHORITY, /* host:port, only with CONNECT */
    HTTP1_FORM_ASTERISK,  /* *, only with OPTIONS */
};

/* How the end of the body is found. */
enum http1_framing {
    HTTP1_FRAMING_NONE,        /* there is no body */
    HTTP1_FRAMING_LENGTH,      /* `length` bytes, more than 0 */
    HTTP1_FRAMING_CHUNKED,     /* chunks */
    HTTP1_FRAMING_UNTIL_CLOSE, /* responses only: the end of the connection */
};

struct http1_authority {
    /* A name or an IPv4 address of letters, digits, '-', '_' and '.', or an IPv6 address without
     * its brackets; not normalised otherwise. Empty: not given. */
    struct http1_text host;
    uint16_t port; /* 0: not given */
    bool is_ipv6;
};

struct http1_request {
    struct http1_text method, target;
    enum http1_form form;
    struct http1_text scheme; /* FORM_ABSOLUTE: "http" or "https" as written; otherwise empty */
    struct http1_text path;   /* begins with '/'; empty: FORM_AUTHORITY, FORM_ASTERISK, or absolute without path */
    struct http1_text query;  /* begins with '?'; empty: none */
    struct http1_authority authority; /* of the target; the port of FORM_AUTHORITY is never 0 */
    struct http1_authority host;      /* of the field Host */
    bool host_differs;                /* target and Host both name a host or port, and not the same */
    struct http1_fields fields;
    enum http1_framing framing;
    uint64_t length; /* of the body with FRAMING_LENGTH */
    bool has_length; /* Content-Length is given; it may be 0 */
    bool is_http10;
    bool keep_alive;  /* the client allows another request after this one */
    bool has_upgrade; /* a field Upgrade, named by Connection */
    bool expects_continue;
};

struct http1_response {
    unsigned status;
    struct http1_text reason;
    struct http1_fields fields;
    enum http1_framing framing;
    uint64_t length; /* of the body with FRAMING_LENGTH; in answers to HEAD, of the body that is not sent */
    bool has_length;
    bool is_http10;
    bool keep_alive; /* the server allows another request; never with FRAMING_UNTIL_CLOSE */
    bool is_interim; /* 1xx without 101: another head follows */
    bool is_upgrade; /* 101: the connection changes its protocol after the head */
};

/* `data` is everything that has arrived since the end of the previous message. *seen is the number
 * of bytes searched for the end of the head; the caller sets it to 0 before the first call for each
 * head, so that repeated calls do not search the same bytes again. HTTP1_DONE: the head has
 * *ret_len bytes and the body follows. Bytes that cannot begin a request are refused at once. */
enum http1_result http1_read_request(const char *data, size_t len, size_t *seen, struct http1_request *ret,
                                     size_t *ret_len, struct err *err);
/* `is_head`: the response answers HEAD, so it has no body. `is_connect`: it answers CONNECT, so a
 * status of 2xx has no body and changes the protocol. */
enum http1_result http1_read_response(const char *data, size_t len, size_t *seen, bool is_head, bool is_connect,
                                      struct http1_response *ret, size_t *ret_len, struct err *err);

/* The first field with this name; NULL: none. */
const struct http1_field *http1_find(const struct http1_fields *f, const char *name);
bool http1_text_is(struct http1_text t, const char *s);        /* exactly */
bool http1_text_is_nocase(struct http1_text t, const char *s); /* ASCII letters in either case */
/* Whether a value that is a list with commas has this word, in either case. */
bool http1_list_has(struct http1_text value, struct http1_text word);
struct http1_text http1_text_of(const char *s); /* a string that lives as long as the result */
/* Reads "host", "host:port", "[v6]" or "[v6]:port" as a Host field may have it. */
bool http1_authority_parse(struct http1_text t, struct http1_authority *ret);
