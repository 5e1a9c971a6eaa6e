//! Ways out of the VM, each of which is closed also where code may do all that plugins may.

use super::{settings, value};
use crate::UntrustedLua;

#[track_caller]
fn closed(code: &str, expected: &str) {
    let found = value(settings(UntrustedLua::On), code);
    assert!(found.contains(expected), "{code}: {found}");
}

#[test]
fn there_is_no_ffi() {
    closed("return require('ffi')", "module 'ffi' not found");
    closed("local x = 1LL return require('ffi')", "module 'ffi' not found");
    closed("load('return 1ULL')() return package.loaded.ffi", "nil");
    closed("return package.preload.ffi", "nil");
    closed("return tostring(2LL + 3)", "5LL");
    closed("return getmetatable(1LL)", "ffi");
    closed("return (1LL).anything", "error");
    // What the arithmetic needs outlives collections.
    closed(
        "for _ = 1, 3 do collectgarbage() end local t = {} for i = 1, 1e4 do t[i] = {} end return tostring(2LL + 3)",
        "5LL",
    );
    closed(
        "for _ = 1, 3 do collectgarbage() end local t = {} for i = 1, 1e4 do t[i] = {} end return 1LL .. ''",
        "error",
    );
}

#[test]
fn there_is_no_bytecode() {
    closed("return string.dump", "nil");
    closed("return ('').dump", "nil");
    // A header of LuaJIT's bytecode, and of Lua's.
    for header in ["\\27LJ\\2\\0", "\\27Lua"] {
        closed(&format!("local f, why = load('{header}') return why"), "binary chunk");
        closed(&format!("local f, why = loadstring('{header}') return why"), "binary chunk");
        closed(
            &format!(
                "local done local f, why = load(function() if not done then done = 1 return '{header}' end end) return why"
            ),
            "binary chunk",
        );
        closed(&format!("local f, why = load('{header}', 'x', 'b') return why"), "binary chunk");
    }
    closed("return tostring(loadfile) .. tostring(dofile)", "nilnil");
    closed("return load('return 1 + 1')()", "2");
    closed("return load('return x', 'n', 't', { x = 7 })()", "7");
}

#[test]
fn there_are_no_raw_pointers() {
    closed(
        "local ok, b = pcall(require, 'string.buffer') return tostring(ok and b.new and b.new().ref) .. tostring(ok and b.new and b.new().reserve)",
        "",
    );
    let found = value(
        settings(UntrustedLua::On),
        "local ok, b = pcall(require, 'string.buffer') if not ok then return 'closed' end \
         local it = b.new() return (it.ref or it.reserve) and 'open' or 'closed'",
    );
    assert_eq!(found, "closed");
    let buffer = "local b = require('string.buffer').new() b:put('a', 1)";
    closed(&format!("{buffer} return #b .. tostring(b)"), "2a1");
    closed(&format!("{buffer} return getmetatable(b)"), "buffer");
}

#[test]
fn the_compiler_cannot_be_reached() {
    for module in ["jit.util", "jit.profile", "jit.opt"] {
        closed(&format!("return require('{module}')"), "not found");
    }
    closed("return tostring(jit.util) .. tostring(jit.opt) .. tostring(jit.profile)", "nilnilnil");
    closed("jit.on() return tostring(jit.status)", "");
    closed("return jit.version", "LuaJIT");
}

#[test]
fn neither_can_the_machine() {
    for name in ["os.execute", "os.exit", "os.remove", "os.rename", "os.tmpname", "io.popen", "newproxy"] {
        closed(&format!("return {name}"), "nil");
    }
    for name in [
        "sethook",
        "getregistry",
        "getlocal",
        "setlocal",
        "getmetatable",
        "setmetatable",
        "getupvalue",
        "setupvalue",
        "upvalueid",
        "upvaluejoin",
        "getfenv",
        "setfenv",
        "debug",
        "getuservalue",
        "setuservalue",
    ] {
        closed(&format!("return debug.{name}"), "nil");
    }
    closed("return require('debug') == debug and debug.getinfo(1, 'f').func", "nil");
    closed("return tostring(package.loadlib) .. tostring(package.cpath)", "nilnil");
}

#[test]
fn files_have_no_finalizers() {
    closed("return tostring(getmetatable(io.stdout))", "false");
    closed("io.stdout.__gc = function() end", "error");
    closed(
        "return tostring(io.stdout.__index) .. tostring(io.stdout.__gc) .. type(io.stdout.write)",
        "nilnilfunction",
    );
}

#[test]
fn only_regular_files_are_opened() {
    for path in
        ["/proc/self/mem", "/proc/self/environ", "/dev/null", "/dev/../proc/self/maps", "/sys/new", "."]
    {
        closed(&format!("local f, why = io.open('{path}') return why"), "Permission denied");
        closed(&format!("io.lines('{path}')"), "Permission denied");
    }
    closed("local f, why = io.open('/no/such/file') return why", "No such file");
    closed("local f, why = io.open('no-such-file') return why", "No such file");
    closed("local f = io.open('Cargo.toml') local text = f:read('*a') f:close() return text", "[package]");
    closed("for line in io.lines('Cargo.toml') do return line end", "[package]");
    closed("return tostring(io.read) .. tostring(io.stdin) .. tostring(io.input)", "nilnilnil");
}
