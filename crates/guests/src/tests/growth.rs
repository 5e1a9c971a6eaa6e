//! How much memory code gets before the clock is looked at.

use super::{run, settings, value};
use crate::vm::Vm;
use crate::{LuaSettings, UntrustedLua};
use mlua::{Function, LuaString};
use std::sync::Arc;
use std::time::Duration;

fn patient() -> LuaSettings {
    LuaSettings { timeout: Duration::from_secs(60), ..settings(UntrustedLua::On) }
}

#[test]
fn few_instructions_do_not_fill_the_memory() {
    for code in [
        format!("local s = '1' {}", "s = s .. s ".repeat(24)),
        format!("local s = '1' {} s = {}", "s = s .. s ".repeat(19), ["s"; 40].join(" .. ")),
        format!("local s = ngx.md5('') {}", "s = s .. s ngx.md5('') ".repeat(19)),
    ] {
        let code = format!("{code} kong.response.exit(200, tostring(#s))");
        let outcome = run(patient(), &code, "GET /");
        assert_eq!(outcome.status(), 500, "{code}: {:?}", outcome.answer);
    }
}

#[test]
fn legitimate_texts_and_tables_grow_as_they_need() {
    let mut faults = Vec::new();
    for (code, expected) in [
        ("return #('a' .. ('x'):rep(1e7) .. 'b')", "10000002"),
        (
            "local b = ngx.decode_base64(ngx.encode_base64(('x'):rep(5e6))) \
             b = 'prefix' .. b .. 'suffix' local c = b .. 'x' local d = 'y' .. c return #d",
            "5000014",
        ),
        (
            "local s = '' for i = 1, 4000 do s = s .. ('line %d of a text that grows by lines\\n'):format(i) end return #s",
            "158893",
        ),
        ("local p, s = ('x'):rep(4096), '' for _ = 1, 500 do s = s .. p end return #s", "2048000"),
        (
            "local t, s = {}, '' for i = 1, 200 do t[i] = ('%05d'):format(i) .. ('x'):rep(16379) end \
             for i = 1, 200 do s = s .. t[i] end return #s",
            "3276800",
        ),
        (
            "local t, s = {}, '' for i = 1, 60 do t[i] = ('%05d'):format(i) .. ('x'):rep(65531) end \
             for i = 1, 60 do s = s .. t[i] end return #s",
            "3932160",
        ),
        (
            "local t, s = {}, '' for i = 1, 20 do t[i] = ('%05d'):format(i) .. ('x'):rep(262139) end \
             for i = 1, 20 do s = s .. t[i] end return #s",
            "5242880",
        ),
        (
            "local pieces, s = {}, '' for i = 1, 64 do pieces[i] = ('x'):rep(16384) .. i end \
             for i = 1, 64 do s = s .. pieces[i] end return #s",
            "1048695",
        ),
        ("local t = {} for i = 1, 50 do t[i] = ('x'):rep(1e6) .. i end return #t", "50"),
        ("local t = {} for i = 1, 5e5 do t[i] = i end return #t", "500000"),
        (
            "local t = {} for i = 1, 2e5 do t[i] = i end local cjson = require 'cjson' \
             return #cjson.decode(cjson.encode(t))",
            "200000",
        ),
        ("return #require('cjson').decode('[' .. ('[],'):rep(2e5) .. '[]]')", "200001"),
        (
            "local zlib = require 'zlib' local packed = zlib.deflate()(('x'):rep(2e7), 'finish') \
             return #zlib.inflate()(packed)",
            "20000000",
        ),
        ("return #(('x'):rep(2e5):gsub('x', ('y'):rep(40)))", "8000000"),
        ("return #ngx.re.gsub(('x'):rep(2e5), 'x', ('y'):rep(40))", "8000000"),
        ("return #ngx.escape_uri((' '):rep(3e6))", "9000000"),
        ("return #('%s'):format(('x'):rep(8e6))", "8000000"),
        ("return #table.concat({ ('x'):rep(8e6), 'y' })", "8000001"),
        ("return #require('string.buffer').new():put(('x'):rep(8e6)):tostring()", "8000000"),
        ("ngx.shared.kong:set('a', ('x'):rep(4e6)) return #ngx.shared.kong:get('a')", "4000000"),
        ("return #load('return { ' .. ('1, '):rep(5e4) .. ' }')()", "50000"),
        ("return require('table.new')(1e5, 1e5) and 1", "1"),
    ] {
        let found = value(patient(), code);
        if found != expected {
            faults.push(format!("{code}\n  expected {expected}, found {found}"));
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// What a function returns, no hook has seen yet: the next one comes after few instructions all the same.
#[test]
fn long_results_are_watched_at_once() {
    let text = "1".repeat(16 << 20);
    let packed = {
        use std::io::Write;
        let mut encoder = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(text.as_bytes()).unwrap();
        encoder.finish().unwrap()
    };
    for (code, given) in [
        ("local z = require('zlib') return function(it) return z.inflate()(it) end", &packed[..]),
        ("return function() return ('1'):rep(16777216) end", b""),
        ("local part = ('1'):rep(64) return function() return (part:rep(4096):rep(64)) end", b""),
    ] {
        let vm = Vm::reading(&Arc::new(patient())).unwrap();
        let function: Function = vm.lua.load(code).eval().unwrap();
        let given = vm.lua.create_string(given).unwrap();
        vm.host.budget.prepare(&vm.lua);
        assert_eq!(vm.host.budget.window(), 250);
        let made: LuaString = function.call(given).unwrap();
        assert_eq!(made.as_bytes().len(), text.len());
        assert!(vm.host.budget.window() <= 15, "{code}: {}", vm.host.budget.window());
    }
}

/// A hook that is set begins to count its instructions anew: the clock is looked at instead.
#[test]
fn a_call_without_time_ends_where_the_hook_begins_anew() {
    for is_exceeded in [false, true] {
        let vm = Vm::reading(&Arc::new(patient())).unwrap();
        let budget = &vm.host.budget;
        let function: Function = vm.lua.load("return function() return #('x'):rep(2e6) end").eval().unwrap();
        budget.prepare(&vm.lua);
        budget.restart(Duration::ZERO);
        let before = budget.window();
        if is_exceeded {
            budget.exceed(None);
        }
        assert_eq!(function.call::<usize>(()).is_err(), is_exceeded);
        assert!(budget.window() < before);
    }
}

/// What a call has left in use, before any hook has run, does not count against the next.
#[test]
fn a_call_gets_its_memory_whatever_the_one_before_has_kept() {
    let vm = Vm::reading(&Arc::new(patient())).unwrap();
    let code = format!(
        "local kept = {{}} return function() local s = tostring(#kept) {} kept[#kept + 1] = s return #s end",
        "s = s .. s ".repeat(20)
    );
    let grow: Function = vm.lua.load(code).eval().unwrap();
    for _ in 0..5 {
        vm.host.budget.prepare(&vm.lua);
        assert_eq!(grow.call::<usize>(()).unwrap(), 1 << 20);
    }
}
