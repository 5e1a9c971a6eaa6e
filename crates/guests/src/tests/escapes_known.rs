//! What others have broken sandboxes, LuaJIT and its hosts with: known escapes, crashes and ways to run without end.

use super::{gateway, settings, value};
use crate::{LuaSettings, UntrustedLua};
use serde_json::json;
use std::time::Duration;

/// What code of the sandbox finds, or the error that it gets.
#[track_caller]
fn sandboxed(code: &str, expected: &str) {
    let found = value(settings(UntrustedLua::Sandbox), code);
    assert!(found.contains(expected), "{code}: {found}");
}

/// The real globals have functions that the sandbox hides.
const REAL: &str = "local function real(t) if type(t) ~= 'table' then return end \
                    local ok, it = pcall(function() return t.loadstring or t.setmetatable or t.rawset or t.debug or t.io end) \
                    return ok and it and 'escaped' end ";

#[test]
fn the_real_globals_cannot_be_reached() {
    for place in [
        "_G",
        "_G._G",
        "getfenv",
        "kong._G",
        "ngx._G",
        "string._G",
        "coroutine._G",
        "require",
        "_ENV",
        "_G.package",
        "_G.package and _G.package.loaded",
        "getmetatable",
        "kong.log.inspect",
        "kong.ctx.shared",
        "kong.cache.__index",
        "ngx.shared",
        "ngx.ctx",
        "ngx.req",
        "table.foreach",
        "string.__index",
        "(''):gsub('', '')",
        "(function(...) return ... end)(pcall)",
        "coroutine.running()",
        "coroutine.wrap(function() return _G end)()",
        "select(2, pcall(error, _G))",
        "select(2, xpcall(function() error(_G) end, function(e) return e end))",
        "kong.configuration",
        "kong.tracing()",
        "(select(2, pcall(require, 'cjson')))",
    ] {
        let code = format!("{REAL}return tostring(real({place}))");
        let found = value(settings(UntrustedLua::Sandbox), &code);
        assert!(!found.contains("escaped"), "{place}: {found}");
    }
    for name in
        ["setfenv", "getfenv", "rawget", "rawlen", "debug", "package", "io", "collectgarbage", "bit", "jit"]
    {
        sandboxed(&format!("return tostring({name})"), "nil");
    }
    // A stack level, or a function of the host, leads to no other globals.
    sandboxed("return pcall(function() return getfenv(2) end)", "false");
    sandboxed("return pcall(function() return setfenv(print, {}) end)", "false");
}

#[test]
fn what_all_share_cannot_be_changed() {
    for code in [
        "string.rep = 1",
        "('').rep = 1",
        "(''):rep(1).x = 1",
        "table.concat = 1",
        "math.huge = 1",
        "coroutine.wrap = 1",
        "os.time = 1",
        "kong.request = 1",
        "kong.request.get_header = 1",
        "kong.log.err = 1",
        "kong.cache.get = 1",
        "ngx.re.match = 1",
        "ngx.null.x = 1",
        "ngx.shared.kong = 1",
        "ngx.shared.kong.get = 1",
        "ngx.ctx.x = ngx ngx.ctx.x.say = 1",
        "kong.configuration.plugins = 1",
        "table.insert(string, 1)",
        "table.insert(kong, 1) local _ = kong[1] and error('escaped')",
        "local _ = next(string) and error('escaped')",
        "for k in pairs(kong) do if k ~= 'cache' and k ~= 'vault' and k ~= 'tracing' then error('escaped ' .. k) end end error('none')",
    ] {
        let found = value(settings(UntrustedLua::Sandbox), code);
        assert!(!found.contains("escaped"), "{code}: {found}");
    }
    // What one has done to its libraries, the next does not see.
    let gateway = gateway(LuaSettings::default());
    let run = |code: &str| {
        let hooks = gateway.plugin("pre-function", json!({ "access": [code] })).unwrap();
        gateway.send(&[&*hooks], "GET /").answer
    };
    run(
        "pcall(function() table.insert(string, 'x') end) pcall(function() table.sort(kong) end) table.remove(math)",
    );
    let seen =
        run("kong.response.exit(200, tostring(string[1]) .. ('a'):rep(2) .. tostring(kong.version ~= nil))");
    assert_eq!(seen.as_deref(), Some("nilaatrue"));
}

/// Runs code with little time and memory: it ends, and the VM goes on to serve.
#[track_caller]
fn survived(code: &str) {
    let limits =
        LuaSettings { timeout: Duration::from_millis(200), memory: 32 << 20, ..settings(UntrustedLua::On) };
    let gateway = gateway(limits);
    let run = |code: &str| {
        let hooks = gateway.plugin("pre-function", json!({ "access": [code] })).unwrap();
        gateway.send(&[&*hooks], "GET /a").status()
    };
    let status = run(code);
    assert!([200, 500].contains(&status), "{code}: {status}");
    assert_eq!(run("kong.response.exit(204)"), 204, "{code}");
}

#[test]
fn huge_counts_and_sizes() {
    for code in [
        "return unpack({}, 1, 1e8)",
        "return unpack({}, -2147483648, 2147483647)",
        "return unpack({}, 2^53, 2^53 + 1e7)",
        "return select(-2147483648, 1)",
        "return select(2147483647, 1)",
        "return ('x'):byte(-2147483648, 2147483647)",
        "return ('x'):rep(2147483647), ('x'):rep(2^53), (''):rep(1e15), ('x'):rep(-1e15), ('xy'):rep(1e9, 'z')",
        "return string.char(unpack((function() local t = {} for i = 1, 8000 do t[i] = 65 end return t end)()))",
        "return table.concat({}, 'x', 1, 2147483647), table.concat({}, ('x'):rep(1e6), -1e9, 1e9)",
        "return ('%99.99f'):format(1e308), ('%9999d'):format(1), ('%.9999f'):format(1)",
        "return ('%s'):rep(200):format(1)",
        "return require('table.new')(2147483647, 0)",
        "return require('table.new')(0, 2147483647)",
        "return kong.table.new(1e9, 1e9)",
        "return tonumber(('1'):rep(1e6), 36), tonumber('0x' .. ('f'):rep(1e6)), tonumber('1e999999')",
        "return os.date(('%c'):rep(1e4)), os.date('*t', 2^53), os.date('%', 0), os.date('%Ez%O%9')",
        "return os.time({ year = 1e308, month = 1, day = 1 }), os.time({ year = -1e9, month = 1e9, day = 1 })",
        "return math.random(0), math.random(2^53), math.ldexp(1, 2^31), math.fmod(1, 0)",
        "return bit.lshift(1, 2^31), bit.tohex(1, 2^31), bit.tobit(0/0), bit.rol(1, -1e9)",
        "local t = {} for i = 1, 1e7 do t[i] = i end",
        "local t = setmetatable({}, { __len = function() return 2^53 end }) table.sort(t) return table.concat(t)",
        "local t = setmetatable({}, { __len = function() return -1 end }) table.insert(t, 1) table.remove(t) return unpack(t)",
        "local s = 'x' while true do s = s .. s end",
        "local t = {} while true do t = { t } end",
        "local t = {} for i = 1, 1e6 do t[i] = coroutine.create(function() end) end",
        "return load(('a='):rep(1e5) .. '1')",
        "return load('return ' .. ('('):rep(1e5) .. ('x'):rep(10))",
        "return load('return ' .. ('{'):rep(1e4))",
        "return load('return ' .. ('\"a\"..'):rep(1e5) .. '1')",
        "return load('local ' .. ('a,'):rep(300) .. 'b')",
        "return load(('if x then else'):rep(1e4))",
        "return load('return ' .. ('-'):rep(1e5) .. '1')",
        "return load('goto x ' .. ('do '):rep(1e4))",
        "return load('return function() ' .. ('return function() '):rep(1e4))",
        "return load(function() return 'x ' end)",
    ] {
        survived(code);
    }
}

#[test]
fn recursion_of_every_kind() {
    for code in [
        "local function f() return 1 + f() end f()",
        "local function f() f() f() end pcall(f)",
        "local function f() return pcall(f) end f()",
        "local function f() return xpcall(f, f) end f()",
        "xpcall(error, function(e) error(e) end)",
        "local function h() return h() + 1 end xpcall(error, h)",
        "local t = setmetatable({}, {}) getmetatable(t).__index = t return t.x",
        "local t = {} setmetatable(t, { __index = function(s, k) return s[k] end }) return t.x",
        "local t = setmetatable({}, {}) getmetatable(t).__newindex = t t.x = 1",
        "local t = setmetatable({}, {}) getmetatable(t).__call = t t()",
        "local t = setmetatable({}, { __tostring = function(s) return tostring(s) end }) tostring(t)",
        "local t = setmetatable({}, { __eq = function(a, b) return a == b end }) return t == setmetatable({}, getmetatable(t))",
        "local t = setmetatable({}, { __lt = function(a, b) return a < b end }) return t < t",
        "local t = setmetatable({}, { __concat = function(a, b) return a .. b end }) return t .. t",
        "local t = setmetatable({}, { __unm = function(a) return -a end }) return -t",
        "local t = setmetatable({}, { __len = function(a) return #a end }) return #t",
        "local t = setmetatable({}, { __pairs = function(a) return pairs(a) end }) for _ in pairs(t) do end",
        "local function f(s) return (s:gsub('.', f)) end f('x')",
        "local function f() return coroutine.wrap(f)() end f()",
        "local function f() table.sort({ 1, 2 }, f) end f()",
        "local function f() return load('return ...')(load(f)) end f()",
        "local function f() return require('cjson').encode(setmetatable({}, { __index = f })) end f()",
        "local t = {} t.t = t return require('cjson').encode(t)",
        "local t = {} t.t = t kong.log.inspect(t)",
        "local t = {} t[1] = t ngx.say(t)",
        "local t = {} for i = 1, 1e5 do t = { t } end return require('cjson').encode(t)",
        "return require('cjson').decode(('['):rep(1e6))",
        "return ngx.re.match(('a'):rep(1e5), ('('):rep(1e4))",
    ] {
        survived(code);
    }
}

#[test]
fn coroutines_that_are_misused() {
    for code in [
        "coroutine.yield(1)",
        "coroutine.yield()",
        "pcall(coroutine.yield)",
        "coroutine.resume(coroutine.running())",
        "local c c = coroutine.create(function() return coroutine.resume(c) end) coroutine.resume(c)",
        "local c = coroutine.create(function() end) coroutine.resume(c) coroutine.resume(c)",
        "local w w = coroutine.wrap(function() w() end) w()",
        "local c = coroutine.create(function() coroutine.yield() end) coroutine.resume(c) c = nil collectgarbage()",
        "coroutine.wrap(function() kong.response.exit(200) end)()",
        "local c = coroutine.create(function() kong.response.exit(200) end) coroutine.resume(c) coroutine.resume(c)",
        "for i = 1, 1e4 do coroutine.wrap(function() coroutine.yield() end)() end",
        "local c = coroutine.wrap(function() for i = 1, 1e9 do coroutine.yield(i) end end) while true do c() end",
        "table.sort({ 3, 2, 1 }, function(a, b) coroutine.yield() return a < b end)",
        "('x'):gsub('x', function() coroutine.yield() end)",
        "setmetatable({}, { __index = coroutine.yield }).x = nil local _ = setmetatable({}, { __index = coroutine.yield }).x",
        "coroutine.wrap(coroutine.wrap(coroutine.yield))()",
    ] {
        survived(code);
    }
}

#[test]
fn errors_that_do_something() {
    let looping = "setmetatable({}, { __tostring = function() while true do end end, __concat = function() while true do end end })";
    for code in [
        format!("error({looping})"),
        format!("kong.log.err({looping})"),
        format!("ngx.log(ngx.ERR, {looping})"),
        format!("pcall(error, {looping}) kong.response.exit(200, tostring({looping}))"),
        format!("xpcall(function() error({looping}) end, tostring)"),
        format!("return require('cjson').encode({{ [{looping}] = 1 }})"),
        format!("kong.log.inspect({looping})"),
        format!("kong.response.set_header({looping}, {looping})"),
        format!("kong.service.request.set_headers({{ a = {looping} }})"),
        format!("ngx.header.a = {looping}"),
        format!("ngx.say({looping})"),
        format!("kong.response.exit(200, {{ a = {looping} }})"),
        format!("kong.ctx.shared.x = {looping} kong.log.set_serialize_value('a', kong.ctx.shared.x)"),
        format!("debug.traceback({looping}) debug.getinfo(1, {looping})"),
        "error(nil)".to_owned(),
        "error()".to_owned(),
        "error(setmetatable({}, { __tostring = function() return 1 end }))".to_owned(),
        "error(coroutine.create(print))".to_owned(),
        "error(('x'):rep(1e7))".to_owned(),
        "error('\\0\\255', 1e9)".to_owned(),
        "assert(false, {})".to_owned(),
        "xpcall(function() local a = nil + 1 end, debug.traceback)".to_owned(),
        "debug.traceback(('x'):rep(1e6), -1) debug.traceback('x', 1e18) debug.getinfo(-1)".to_owned(),
    ] {
        survived(&code);
    }
}

#[test]
fn tables_without_an_end() {
    let endless = "setmetatable({}, { __index = function() return 'x' end, __len = function() return 2^53 end, \
                   __pairs = function() return function(_, k) return (k or 0) + 1, 1 end end })";
    for code in [
        format!("ngx.say({endless})"),
        format!("ngx.header.a = {endless}"),
        format!("ngx.req.set_header('a', {endless})"),
        format!("ngx.req.set_uri_args({endless})"),
        format!("return ngx.encode_args({endless})"),
        format!("return require('cjson').encode({endless})"),
        format!("return table.concat({endless})"),
        format!("return unpack({endless})"),
        format!("table.insert({endless}, 1)"),
        format!("table.sort({endless})"),
        format!("kong.response.exit(200, {endless}, {endless})"),
        format!("kong.service.request.set_headers({endless})"),
        format!("kong.service.request.set_query({endless})"),
        format!("kong.service.request.set_body({endless}, 'application/json')"),
        format!("return kong.table.merge({endless}, {endless})"),
        format!("kong.log.inspect({endless})"),
        format!("kong.log.set_serialize_value('a', {endless})"),
        format!("return kong.cache:get('a', nil, function() return {endless} end)"),
        format!("return ngx.shared.kong:set('a', {endless})"),
        format!("for _ in pairs({endless}) do end"),
        format!("return require('pl.pretty').write({endless})"),
        format!("return require('inspect')({endless})"),
        format!("return require('kong.tools.table').deep_copy({endless})"),
    ] {
        survived(&code);
    }
}

/// The FFI, by the ways that hosts forgot.
#[test]
fn there_is_no_ffi_by_any_way() {
    for code in [
        "return require('ffi')",
        "return package.loaded.ffi",
        "return package.preload.ffi",
        "return package.loaded['jit.util'] or package.loaded['jit.opt'] or package.loaded['jit.profile']",
        "local x = 1LL return package.loaded.ffi",
        "load('return 1ULL, 2i')() return package.loaded.ffi",
        "local ok, f = pcall(require, 'ffi') return ok and f",
        "return package.loaders and package.loaders[2]('ffi')",
        "return package.searchers and package.searchers[2]('ffi')",
        "return jit.util or jit.opt or jit.attach",
        "return (getmetatable(1LL) or {}).__index",
        "return getfenv(0).ffi",
        "return debug.getregistry and debug.getregistry()",
        "return package.loadlib and package.loadlib('libc.so.6', '*')",
        "return require('string.buffer').new().ref or require('string.buffer').new().reserve or require('string.buffer').new().commit",
        "return require('resty.core').base and 1",
        "return require('thread.exdata')",
    ] {
        let found = value(settings(UntrustedLua::On), code);
        let is_closed = ["nil", "false", "ffi", "not found"].iter().any(|it| found.contains(it));
        assert!(
            is_closed && !found.starts_with("table:") && !found.starts_with("function:"),
            "{code}: {found}"
        );
    }
}
