//! The constants of `ngx`.

use mlua::{Table, Value};

const NUMBERS: [(&str, i32); 46] = [
    ("OK", 0),
    ("ERROR", -1),
    ("AGAIN", -2),
    ("DONE", -4),
    ("DECLINED", -5),
    ("STDERR", 0),
    ("EMERG", 1),
    ("ALERT", 2),
    ("CRIT", 3),
    ("ERR", 4),
    ("WARN", 5),
    ("NOTICE", 6),
    ("INFO", 7),
    ("DEBUG", 8),
    ("HTTP_GET", 2),
    ("HTTP_HEAD", 4),
    ("HTTP_POST", 8),
    ("HTTP_PUT", 16),
    ("HTTP_DELETE", 32),
    ("HTTP_MKCOL", 64),
    ("HTTP_COPY", 128),
    ("HTTP_MOVE", 256),
    ("HTTP_OPTIONS", 512),
    ("HTTP_PROPFIND", 1024),
    ("HTTP_PROPPATCH", 2048),
    ("HTTP_LOCK", 4096),
    ("HTTP_UNLOCK", 8192),
    ("HTTP_PATCH", 16384),
    ("HTTP_TRACE", 32768),
    ("HTTP_CONTINUE", 100),
    ("HTTP_OK", 200),
    ("HTTP_CREATED", 201),
    ("HTTP_ACCEPTED", 202),
    ("HTTP_NO_CONTENT", 204),
    ("HTTP_MOVED_PERMANENTLY", 301),
    ("HTTP_MOVED_TEMPORARILY", 302),
    ("HTTP_NOT_MODIFIED", 304),
    ("HTTP_BAD_REQUEST", 400),
    ("HTTP_UNAUTHORIZED", 401),
    ("HTTP_FORBIDDEN", 403),
    ("HTTP_NOT_FOUND", 404),
    ("HTTP_NOT_ALLOWED", 405),
    ("HTTP_TOO_MANY_REQUESTS", 429),
    ("HTTP_INTERNAL_SERVER_ERROR", 500),
    ("HTTP_BAD_GATEWAY", 502),
    ("HTTP_SERVICE_UNAVAILABLE", 503),
];

/// The methods, by the constants of theirs.
pub(super) const METHODS: [(i64, &str); 15] = [
    (2, "GET"),
    (4, "HEAD"),
    (8, "POST"),
    (16, "PUT"),
    (32, "DELETE"),
    (64, "MKCOL"),
    (128, "COPY"),
    (256, "MOVE"),
    (512, "OPTIONS"),
    (1024, "PROPFIND"),
    (2048, "PROPPATCH"),
    (4096, "LOCK"),
    (8192, "UNLOCK"),
    (16384, "PATCH"),
    (32768, "TRACE"),
];

/// Adds them.
pub(super) fn fill(ngx: &Table) -> mlua::Result<()> {
    NUMBERS.iter().try_for_each(|(name, number)| ngx.raw_set(*name, *number))?;
    ngx.raw_set("HTTP_GATEWAY_TIMEOUT", 504)?;
    ngx.raw_set("null", Value::NULL)
}
