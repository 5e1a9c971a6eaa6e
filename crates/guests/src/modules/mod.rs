//! Modules that Lua code requires by name.
//!
//! They know nothing of requests. Some use functions that the host puts into `ngx`: `now`, `time`, `re`, `log`.

mod address;
mod cjson;
mod crypto;
mod files;
mod ngx;
pub(crate) mod number;
mod zlib;

use crate::cache;
use mlua::chunk::{Chunk, ChunkMode};
use mlua::{Lua, Table, Value};
use weir_plugin::KONG_VERSION;

pub(crate) use cjson::{array as json_array, read as from_json, write as to_json};
pub use ngx::{encodings, regex};

/// Where a module comes from.
enum Source {
    /// A function that makes it.
    Rust(fn(&Lua) -> mlua::Result<Value>),
    /// Lua code, called with the module's name. It may require other modules.
    Script(&'static str),
    /// Lua code, called with the module's name and a table of functions in Rust.
    Backed(&'static str, fn(&Lua) -> mlua::Result<Table>),
}

use Source::{Backed, Rust, Script};

const DIGEST: Source = Backed(include_str!("lua/resty_digest.lua"), crypto::natives);
const TABLE: Source = Script(include_str!("lua/table_functions.lua"));
const SOCKET_HTTP: Source = Script(include_str!("lua/socket_http.lua"));
const OF_CORE: Source = Script(include_str!("lua/ngx_modules.lua"));
const OPENSSL_DIGEST: Source = Backed(include_str!("lua/openssl_digest.lua"), crypto::natives);

/// The modules by name.
const MODULES: &[(&str, Source)] = &[
    ("cjson", Rust(cjson::raising)),
    ("cjson.safe", Rust(cjson::safe)),
    ("ffi-zlib", Script(include_str!("lua/ffi_zlib.lua"))),
    ("inspect", Script(include_str!("lua/inspect.lua"))),
    ("kong.api.endpoints", Script(include_str!("lua/kong_endpoints.lua"))),
    ("kong.constants", Script(include_str!("lua/kong_constants.lua"))),
    ("kong.db.errors", Script(include_str!("lua/kong_db_errors.lua"))),
    ("kong.db.schema", Script(include_str!("lua/kong_schema.lua"))),
    ("kong.db.schema.entity_checks", Script(include_str!("lua/kong_schema_entity_checks.lua"))),
    ("kong.db.schema.rules", Script(include_str!("lua/kong_schema_rules.lua"))),
    ("kong.db.schema.typedefs", Script(include_str!("lua/kong_typedefs.lua"))),
    ("kong.meta", Backed(include_str!("lua/kong_meta.lua"), meta)),
    ("kong.plugins.jwt.jwt_parser", Backed(include_str!("lua/jwt_parser.lua"), crypto::natives)),
    ("kong.tools.cjson", Script(include_str!("lua/kong_cjson.lua"))),
    ("kong.tools.gzip", Script(include_str!("lua/kong_gzip.lua"))),
    ("kong.tools.http", Script(include_str!("lua/kong_http.lua"))),
    ("kong.tools.ip", Backed(include_str!("lua/kong_ip.lua"), address::natives)),
    ("kong.tools.module", Script(include_str!("lua/kong_module.lua"))),
    ("kong.tools.queue", Script(include_str!("lua/kong_queue.lua"))),
    ("kong.tools.rand", Script(include_str!("lua/kong_rand.lua"))),
    ("kong.tools.redis.schema", Script(include_str!("lua/kong_redis_schema.lua"))),
    ("kong.tools.sha256", Backed(include_str!("lua/kong_sha256.lua"), crypto::natives)),
    ("kong.tools.string", Script(include_str!("lua/kong_string.lua"))),
    ("kong.tools.table", Script(include_str!("lua/kong_table.lua"))),
    ("kong.tools.time", Script(include_str!("lua/kong_time.lua"))),
    ("kong.tools.timestamp", Script(include_str!("lua/kong_timestamp.lua"))),
    ("kong.tools.uri", Script(include_str!("lua/kong_uri.lua"))),
    ("kong.tools.utils", Script(include_str!("lua/kong_utils.lua"))),
    ("kong.tools.uuid", Backed(include_str!("lua/kong_uuid.lua"), address::natives)),
    ("lfs", Rust(files::lfs)),
    ("ltn12", Script(include_str!("lua/ltn12.lua"))),
    ("mime", Script(include_str!("lua/mime.lua"))),
    ("ngx.base64", Rust(ngx::base64_url)),
    ("ngx.errlog", OF_CORE),
    ("ngx.process", OF_CORE),
    ("ngx.re", Script(include_str!("lua/ngx_re.lua"))),
    ("ngx.req", OF_CORE),
    ("ngx.ssl", Backed(include_str!("lua/ngx_ssl.lua"), crypto::natives)),
    ("pl.List", Script(include_str!("lua/pl_list.lua"))),
    ("pl.OrderedMap", Script(include_str!("lua/pl_orderedmap.lua"))),
    ("pl.class", Script(include_str!("lua/pl_class.lua"))),
    ("pl.file", Script(include_str!("lua/pl_file.lua"))),
    ("pl.path", Script(include_str!("lua/pl_path.lua"))),
    ("pl.pretty", Script(include_str!("lua/pl_pretty.lua"))),
    ("pl.strict", Script(include_str!("lua/pl_strict.lua"))),
    ("pl.stringx", Script(include_str!("lua/pl_stringx.lua"))),
    ("pl.tablex", Script(include_str!("lua/pl_tablex.lua"))),
    ("pl.template", Script(include_str!("lua/pl_template.lua"))),
    ("pl.types", Script(include_str!("lua/pl_types.lua"))),
    ("pl.utils", Script(include_str!("lua/pl_utils.lua"))),
    ("resty.aes", Backed(include_str!("lua/resty_aes.lua"), crypto::natives)),
    ("resty.core", OF_CORE),
    ("resty.hmac", Backed(include_str!("lua/resty_hmac.lua"), crypto::natives)),
    ("resty.http", Script(include_str!("lua/resty_http.lua"))),
    ("resty.http_connect", Script(include_str!("lua/resty_http_connect.lua"))),
    ("resty.http_headers", Script(include_str!("lua/resty_http_headers.lua"))),
    ("resty.ipmatcher", Backed(include_str!("lua/resty_ipmatcher.lua"), address::natives)),
    ("resty.jit-uuid", Backed(include_str!("lua/resty_jit_uuid.lua"), address::natives)),
    ("resty.lock", Backed(include_str!("lua/resty_lock.lua"), cache::natives)),
    ("resty.lrucache", Script(include_str!("lua/resty_lrucache.lua"))),
    ("resty.md5", DIGEST),
    ("resty.mlcache", Backed(include_str!("lua/resty_mlcache.lua"), cache::natives)),
    ("resty.openssl", Script(include_str!("lua/openssl.lua"))),
    ("resty.openssl.bn", Backed(include_str!("lua/openssl_bn.lua"), crypto::natives)),
    ("resty.openssl.cipher", Backed(include_str!("lua/openssl_cipher.lua"), crypto::natives)),
    ("resty.openssl.digest", OPENSSL_DIGEST),
    ("resty.openssl.hmac", OPENSSL_DIGEST),
    ("resty.openssl.mac", OPENSSL_DIGEST),
    ("resty.openssl.pkey", Backed(include_str!("lua/openssl_pkey.lua"), crypto::natives)),
    ("resty.openssl.rand", Backed(include_str!("lua/openssl_rand.lua"), crypto::natives)),
    ("resty.openssl.version", Script(include_str!("lua/openssl_version.lua"))),
    ("resty.openssl.x509", Backed(include_str!("lua/openssl_x509.lua"), crypto::natives)),
    ("resty.random", Backed(include_str!("lua/resty_random.lua"), crypto::natives)),
    ("resty.redis", Script(include_str!("lua/resty_redis.lua"))),
    ("resty.sha1", DIGEST),
    ("resty.sha224", DIGEST),
    ("resty.sha256", DIGEST),
    ("resty.sha384", DIGEST),
    ("resty.sha512", DIGEST),
    ("resty.string", Backed(include_str!("lua/resty_string.lua"), crypto::natives)),
    ("socket", Script(include_str!("lua/socket.lua"))),
    ("socket.http", SOCKET_HTTP),
    ("socket.url", Script(include_str!("lua/socket_url.lua"))),
    ("ssl.https", SOCKET_HTTP),
    ("string.buffer", Backed(include_str!("lua/string_buffer.lua"), proxies)),
    ("table.clear", TABLE),
    ("table.clone", TABLE),
    ("table.isarray", TABLE),
    ("table.isempty", TABLE),
    ("table.new", TABLE),
    ("table.nkeys", TABLE),
    ("zlib", Rust(zlib::zlib)),
];

/// The names of all modules.
pub fn names() -> impl Iterator<Item = &'static str> {
    MODULES.iter().map(|(name, _)| *name)
}

/// Makes the module of this name; none if there is none. The caller keeps it, as `require` does.
pub fn load(lua: &Lua, name: &str) -> mlua::Result<Option<Value>> {
    load_over(lua, name, &lua.globals())
}

/// The same, with these globals for code in Lua.
pub(crate) fn load_over(lua: &Lua, name: &str, globals: &Table) -> mlua::Result<Option<Value>> {
    let Some((_, source)) = MODULES.iter().find(|(known, _)| *known == name) else {
        return Ok(None);
    };
    match source {
        Rust(make) => make(lua).map(Some),
        Script(source) => chunk(lua, name, source, globals).call(name).map(Some),
        Backed(source, natives) => chunk(lua, name, source, globals).call((name, natives(lua)?)).map(Some),
    }
}

/// Where a host keeps the function `newproxy` that it hides: who has it runs code that no hook ends.
pub(crate) const NEWPROXY: &str = "weir.newproxy";

/// What `string.buffer` is called with.
fn proxies(lua: &Lua) -> mlua::Result<Table> {
    let hidden: Value = lua.named_registry_value(NEWPROXY)?;
    let make = if hidden.is_nil() { lua.globals().get("newproxy")? } else { hidden };
    lua.create_table_from([("newproxy", make)])
}

/// The code of a module, which errors and tracebacks name after it.
fn chunk<'a>(lua: &Lua, name: &str, source: &'a str, globals: &Table) -> Chunk<'a> {
    let chunk = lua.load(source).set_name(format!("=[{name}]")).set_mode(ChunkMode::Text);
    chunk.set_environment(globals.clone())
}

/// The version as a number: 3.9.1 is 3009001.
pub(crate) fn version_number() -> u32 {
    let parts = KONG_VERSION.split('.').map(|part| part.parse().unwrap_or(0));
    parts.fold(0, |number, part: u32| number * 1000 + part)
}

/// What `kong.meta` says of the version.
fn meta(lua: &Lua) -> mlua::Result<Table> {
    let table = lua.create_table()?;
    table.raw_set("version", KONG_VERSION)?;
    table.raw_set("number", version_number())?;
    Ok(table)
}
