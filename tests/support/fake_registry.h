/* fake_registry.h - a scripted OCI registry on free loopback ports.
 *
 * By itself it is a correct registry that keeps what it gets (distribution-spec 1.1: blobs, uploads
 * in one piece and in chunks with offsets, mounts, manifests, tags in pages, referrers, ranges,
 * deletes; Docker's token protocol and basic authentication). On top of that a table of rules says
 * which requests go wrong and how, byte for byte, and settings change its habits. Every request is
 * recorded. It is a library for C tests (this header) and a program for all others:
 *
 *     fake_registry [--config JSON] [--cert PEM --key PEM [--client-ca PEM]] [--tls10]
 *
 * The program prints one line, {"main":"127.0.0.1:PORT","other":"127.0.0.1:PORT"}, serves until
 * SIGTERM or the end of its parent, and is steered over /_fake/ of either port (never recorded,
 * never ruled):
 *
 *     PUT  /_fake/config    {"settings":{...},"rules":[...]}; both are replaced, also when missing
 *     GET  /_fake/log       the records as an array; ?from=N begins with the N-th (1 is the first)
 *     POST /_fake/forget    what "forget" of a rule says, as the body: a word or a digest
 *     POST /_fake/reset     forgets the records; content stays
 *
 * There are two hosts. "main" is the registry. "other" is an object store: it serves the same
 * content without authentication, but answers 400 to any request with Authorization or Cookie, as
 * such stores do. Redirects lead there.
 *
 * SETTINGS (JSON; the default is in brackets)
 *
 *   "auth" ["none"]         "basic", "bearer"
 *   "users" [{}]            {"name": "password"}; anybody may push who is one
 *   "anonymous" [true]      bearer: a token for pulling is given without credentials
 *   "challenge"             replaces the value of WWW-Authenticate; an array sends several headers;
 *                           "" sends none. {realm} and {scope} are filled in
 *   "realm" ["{main}/token"]
 *   "token_uses" [0: any]   how often a token is accepted
 *   "token_ms" [300000]     how long; expires_in says the same in seconds, rounded up, unless
 *   "expires_in"            says something else; null leaves it out
 *   "token_field" ["token"] "access_token"
 *   "refresh_tokens" [[]]   accepted by the OAuth form (grant_type=refresh_token)
 *   "upload_location" ["{main}/v2/{name}/blobs/uploads/{id}?_state={state}"]
 *                           what Location says of an upload. {path} is /v2/NAME/blobs/uploads/ID.
 *                           {state} changes with every answer
 *   "strict_state" [true]   PATCH and PUT of an upload are 404 unless their _state, if they have
 *                           one, is the latest; GET may have any
 *   "range" ["0-{last}"]    Range of an upload's answers; {last} is 0 when nothing is there, {size}
 *                           counts, {added} is the last of this request's bytes alone; null leaves
 *                           it out
 *   "range_of_get" [as "range"]  the same for GET
 *   "interrupted" ["keep"]  what an upload has after a body that broke off: "keep" the bytes that
 *                           came, "drop" those of this request, "forget" the session (404)
 *   "min_chunk" [0]         OCI-Chunk-Min-Length
 *   "body_max" [0: any]     a body of an upload's request above that is
 *   "body_max_status" [413]
 *   "body_break" [0: never] after so many bytes a body of an upload's request that has more breaks
 *                           off, as where something limits the time of a request; the connection
 *   "body_break_status" [0] ends, or this is answered
 *   "out_of_place_status" [416]  of a chunk that does not begin where the upload ends
 *   "mount" [true]          whether a mount is granted (201), else it opens an upload (202)
 *   "ranges" [true]         whether Range is obeyed
 *   "redirect_blobs" [0]    a status (307, ...): GET of a blob leads to "other"
 *   "redirect_uploads" [0]  the same for PATCH and PUT of uploads
 *   "digest_header" [true]  Docker-Content-Digest of manifests and blobs
 *   "delete" [true]         false: 405
 *   "delete_tags" [true]    false: 400 to a delete by tag
 *   "tags_page" [0: all]    most tags in an answer
 *   "tags_link" ["</v2/{name}/tags/list?n={n}&last={last}>; rel=\"next\""]
 *   "referrers" [true]      false: 404, and no OCI-Subject
 *   "check_manifests" [true] a manifest whose parts are missing is 400 MANIFEST_BLOB_UNKNOWN
 *   "blob_ms" [0: for ever] how long a blob lives that no manifest of the registry names
 *   "fail"                  {"percent":10,"seed":1,"statuses":[500,502,503,429],"retry_after":1,
 *                           "after":50}: so many requests of a hundred fail. Status 0 closes the
 *                           connection. 429 and 503 carry Retry-After when it is given. Of those
 *                           that fail "after" [0] percent do so after the work was done. Which ones
 *                           is decided by the seed and their order
 *
 * RULES are looked at in order; the first one that fits and is due acts. Which requests it is for:
 *
 *   "method"     "PUT", or ["PUT","PATCH"]            [all]
 *   "path"       glob (fnmatch, * takes slashes too) over path and query as sent [all]
 *   "host"       "main", "other"                      [both]
 *   "nth"        only from the n-th request on that fits, counted from the time it was set [1]
 *   "times"      so many of them                      [1 with nth, else all]
 *   "header"     only with this header, whatever its value
 *   "name"       what the record says of it           [its place in the table, from 0]
 *
 * What is done, in this order:
 *
 *   "forget"     "uploads", "blobs" (those no manifest names), "tokens", or the digest of a blob or
 *                manifest
 *   "delay_read_ms"  waits before it reads the body
 *   "read"       so many bytes of the body, then no more: the connection ends by "end" ["close"],
 *                unless there is a "status", which is answered then
 *   "read_rate"  bytes a second
 *   "work"       whether the request is carried out [true, but false with "status" or "raw"]
 *   "delay_ms"   waits between the work and the answer
 *   "raw"        the answer, byte for byte; "end" is ["close"]
 *   "status"     of the answer, with
 *   "body"       text, or any JSON value
 *   "latin1"     whether its characters up to U+00FF are single bytes [false]
 *   "headers"    {"Name": "value"}: added to the answer, or in place of its own; null removes.
 *                Content-Length, too, is sent as said here. An array sends the header several times
 *   "repeat"     the body is repeated up to so many bytes
 *   "cut"        so many bytes are missing at the end of the body, and Content-Length says so
 *   "flip"       the byte at this offset of the body is another one
 *   "no_length"  neither Content-Length nor chunks: the body ends with the connection
 *   "filler"     a header of so many bytes is added
 *   "send_head"  so many bytes of status line and headers are sent, then "end" ["close"]
 *   "send"       so many bytes of the body, then "end" ["close"]
 *   "send_rate"  bytes a second of the body
 *   "end"        "keep", "close", "reset" (the peer sees ECONNRESET), "stall" (silence for as long
 *                as the peer stays)                                                   [keep]
 *
 * In values of "headers", "body", "raw" and of the settings above {main} and {other} are the
 * hosts' "http://127.0.0.1:PORT", {main_port} and {other_port} their ports, and {date+N} is an
 * HTTP date N seconds ahead.
 *
 * RECORDS
 *
 *   "n"           from 1 on, in order of arrival       "conn"   number of the connection
 *   "host"        "main", "other"                      "cert"   the peer showed a certificate
 *   "start_ms", "end_ms"  monotonic
 *   "inflight"    requests under way, with this one
 *   "method", "target", "path"                         "query"  {"name": "decoded value"}
 *   "headers"     {"lower-case-name": "value"}; several are joined by ", "
 *   "bytes"       of the body that arrived
 *   "body"        the body, if it is UTF-8 text and at most 64 KiB
 *   "upload"      {"id", "from", "to"}: which bytes of the blob the request added
 *   "status"      that was sent; 0: none               "sent"   bytes of the answer's body
 *   "answer"      the answer's headers, as "headers"
 *   "rule"        name or place of the rule that acted; "fail" for the setting
 *   "end"         "kept", "closed", "reset", "stalled", "lost" (by the peer)
 *   "done"        the rest is final
 *
 * In C, JSON texts may have ' in place of ". Threads: everything here may be called at any time.
 */
#pragma once

#include "fake_server.h"

#include <jansson.h>

struct fake_registry;

/* `config` is as for PUT /_fake/config, NULL: {}. `options` (NULL: plain http) is for both hosts.
 */
int fake_registry_start(const struct fake_server_options *options, const char *config,
                        struct fake_registry **ret, struct err *err);
void fake_registry_stop(struct fake_registry *fake); /* NULL is fine */

/* "127.0.0.1:PORT" of both; they live as long as the registry. */
const char *fake_registry_main(const struct fake_registry *fake);
const char *fake_registry_other(const struct fake_registry *fake);

/* Replaces settings and rules; content and records stay. ERR_INVALID for what is not in this page:
 * nothing is changed then. */
int fake_registry_config(struct fake_registry *fake, const char *config, struct err *err);
int fake_registry_forget(struct fake_registry *fake, const char *what, struct err *err);
void fake_registry_reset(struct fake_registry *fake);

/* A copy of the records, from the `from`-th on (1 is the first). Caller releases it. */
json_t *fake_registry_log(struct fake_registry *fake, size_t from);
/* How many records have this method (NULL: any) and a target that this glob takes (NULL: any). */
size_t fake_registry_count(struct fake_registry *fake, const char *method, const char *glob);
