//! Libraries in Lua that Debian packages, as an operator has them on `lua_package_path`.

use super::clients::Redis;
use super::waiting::{on_worker, value_in};
use super::{gateway, settings};
use crate::{LuaSettings, PluginFiles, UntrustedLua};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::spawn_local;

/// The folder that `make test-tools` fetches them to.
pub(super) fn folder() -> PathBuf {
    let fetched = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/tools/lua");
    let folder = std::env::var_os("LUA_LIBRARIES").map_or(fetched, PathBuf::from);
    assert!(folder.is_dir(), "{} is missing: run `make test-tools`, or set LUA_LIBRARIES", folder.display());
    folder
}

/// Settings with a folder of modules.
pub(super) fn with_modules(folder: &Path) -> LuaSettings {
    let path = format!("{0}/?.lua;{0}/?/init.lua", folder.display());
    LuaSettings {
        files: Arc::new(PluginFiles::new(&path, "")),
        timeout: Duration::from_secs(60),
        memory: 1 << 30,
        ..settings(UntrustedLua::On)
    }
}

/// What code returns, which may require the libraries.
async fn found(code: &str) -> String {
    value_in(&gateway(with_modules(&folder().join("usr/share/lua/5.1"))), code).await
}

#[track_caller]
fn check(cases: &[(&str, &str)]) {
    on_worker(async {
        for (code, expected) in cases {
            assert_eq!(found(code).await, *expected, "{code}");
        }
    });
}

#[test]
fn libraries_of_formats_run() {
    check(&[
        (
            "local json = require('dkjson') local t = json.decode('{\"a\":[1,2.5,\"x\",null,true]}', 1, json.null) \
             return json.encode(t.a) .. tostring(t.a[4] == json.null) .. json.encode({ x = 'a\"\\n' })",
            r#"[1,2.5,"x",null,true]true{"x":"a\"\n"}"#,
        ),
        ("return select(3, require('dkjson').decode('[1,'))", "unterminated array at line 1, column 1"),
        (
            "local b = require('basexx') return b.to_base64('light work.') .. b.from_base64('bGlnaHQgd29yay4=') \
             .. b.to_base32('foobar') .. b.to_hex('az') .. b.to_url64('>>?') .. b.from_bit('01100001')",
            "bGlnaHQgd29yay4=light work.MZXW6YTBOI======617APj4_a",
        ),
        (
            "local mp = require('MessagePack') \
             return (mp.pack({ a = 1 }):gsub('.', function(c) return ('%02x'):format(c:byte()) end))",
            "81a16101",
        ),
        (
            "local mp = require('MessagePack') local t = mp.unpack(mp.pack({ 1, -300, 2.5, 'text', true, { 'b' } })) \
             return t[1] .. t[2] .. t[3] .. t[4] .. tostring(t[5]) .. t[6][1]",
            "1-3002.5texttrueb",
        ),
    ]);
}

#[test]
fn libraries_of_values_run() {
    check(&[
        (
            "local parser = require('argparse')('tool', 'A tool.') parser:argument('file') \
             parser:option('-l --level', 'The level.', 3):convert(tonumber) parser:flag('-v --verbose'):count('*') \
             local _, args = parser:pparse({ 'x.lua', '-vv', '--level', '5' }) \
             return args.file .. args.level .. args.verbose .. select(2, parser:pparse({}))",
            "x.lua52missing argument 'file'",
        ),
        (
            "local Set = require('pl.Set') local a, b = Set({ 1, 2 }), Set({ 2, 3 }) \
             return tostring(a * b) .. tostring(a - b) .. Set.len(a + b) .. tostring(Set.issubset(a * b, a))",
            "[2][1]3true",
        ),
        (
            "local map = require('pl.Map')({ a = 1 }) map:set('b', 2) map:update({ c = 3 }) map:set('a', nil) \
             return map:keys():sort():concat(',') .. map:len() .. map:get('c')",
            "b,c23",
        ),
        (
            "local seq = require('pl.seq') return seq.sum(seq.map(function(x) return x * 2 end, { 1, 2, 3 })) \
             .. table.concat(seq.copy(seq.take({ 4, 5, 6 }, 2)), ',') .. seq.reduce(math.max, { 7, 9, 8 })",
            "124,59",
        ),
        (
            "local Date = require('pl.Date') local date = Date({ year = 2024, month = 2, day = 28, hour = 12 }):add({ day = 2 }) \
             return Date.Format('yyyy-mm-dd'):tostring(date) .. ' ' .. Date.Format('yyyy-mm-dd'):parse('2011-03-05'):month()",
            "2024-03-01 3",
        ),
    ]);
}

#[test]
fn cookies_are_read_and_set() {
    check(&[
        (
            "ngx.req.set_header('Cookie', 'a=1; b=two') local cookies = require('nginx.cookie'):new() \
             return cookies:get('a') .. cookies:get_all().b .. tostring(cookies:get('c'))",
            "1twonil",
        ),
        (
            "local cookies = require('nginx.cookie'):new() \
             assert(cookies:set({ key = 'n', value = 'v', path = '/', max_age = 60, httponly = true, secure = true })) \
             assert(cookies:set({ key = 'm', value = 'w' })) \
             return select(2, cookies:get('n')) .. ': ' .. table.concat(ngx.header['Set-Cookie'], ' + ')",
            "no cookie found in the current request: n=v; Max-Age=60; Path=/; Secure; HttpOnly + m=w",
        ),
    ]);
}

#[test]
fn a_library_that_needs_c_is_refused_with_its_reason() {
    on_worker(async {
        let said = found("require('nginx.websocket.client')").await;
        assert!(said.contains("module 'ffi' not found"), "{said}");
    });
}

#[test]
fn redis_is_asked_by_debians_client() {
    let redis = Redis::start();
    on_worker(async {
        let begin = format!(
            "local redis, port = require('nginx.redis'), {} local r = redis:new() r:set_timeout(60000) \
             while not r:connect('127.0.0.1', port) do ngx.sleep(0.02) end",
            redis.1
        );
        for (code, expected) in [
            ("return r:set('a', 1) .. r:incr('a') .. tostring(r:get('none') == ngx.null)", "OK2true"),
            (
                "r:init_pipeline() r:set('p', 'v') r:get('p') r:incr('p') local t = r:commit_pipeline() \
                 return t[1] .. t[2] .. tostring(t[3][1]) .. t[3][2]:sub(1, 3)",
                "OKvfalseERR",
            ),
            (
                "assert(r:set_keepalive(10000, 4)) local s = redis:new() assert(s:connect('127.0.0.1', port)) \
                 return s:get_reused_times() .. s:ping()",
                "1PONG",
            ),
            (
                "local connector = require('nginx.redis.connector').new({ connect_timeout = 60000, read_timeout = 60000 }) \
                 local c = assert(connector:connect({ host = '127.0.0.1', port = port, db = 2 })) c:set('db', 'two') \
                 assert(connector:set_keepalive(c)) \
                 local d = assert(connector:connect({ url = 'redis://127.0.0.1:' .. port .. '/2' })) \
                 return d:get('db') .. tostring(r:get('db') == ngx.null)",
                "twotrue",
            ),
            (
                "local connector = require('nginx.redis.connector').new({ host = '127.0.0.1', port = 1 }) \
                 return select(2, connector:connect())",
                "connection refused",
            ),
        ] {
            assert_eq!(found(&format!("{begin} {code}")).await, expected, "{code}");
        }
    });
}

/// A server that speaks a part of memcached's protocol.
async fn memcached(stream: TcpStream) {
    let (mut stream, mut values) = (BufReader::new(stream), HashMap::<String, (String, String)>::new());
    let mut line = String::new();
    while stream.read_line(&mut line).await.is_ok_and(|len| len > 0) {
        let words: Vec<_> = line.split_whitespace().map(str::to_owned).collect();
        let answer = match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
            ["set", key, flags, _, len] => {
                let mut data = vec![0; len.parse::<usize>().unwrap() + 2];
                stream.read_exact(&mut data).await.unwrap();
                let data = String::from_utf8(data).unwrap().trim_end_matches("\r\n").to_owned();
                values.insert(key.to_owned(), (flags.to_owned(), data));
                "STORED\r\n".to_owned()
            }
            ["get", key] => match values.get(key) {
                Some((flags, data)) => format!("VALUE {key} {flags} {}\r\n{data}\r\nEND\r\n", data.len()),
                None => "END\r\n".to_owned(),
            },
            ["incr", key, by] => match values.get_mut(key) {
                Some((_, data)) => {
                    *data = (data.parse::<u64>().unwrap() + by.parse::<u64>().unwrap()).to_string();
                    format!("{data}\r\n")
                }
                None => "NOT_FOUND\r\n".to_owned(),
            },
            ["delete", key] if values.remove(key).is_some() => "DELETED\r\n".to_owned(),
            ["delete", _] => "NOT_FOUND\r\n".to_owned(),
            _ => "ERROR\r\n".to_owned(),
        };
        stream.write_all(answer.as_bytes()).await.unwrap();
        line.clear();
    }
}

#[test]
fn memcached_is_asked_by_debians_client() {
    on_worker(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        spawn_local(async move {
            loop {
                spawn_local(memcached(listener.accept().await.unwrap().0));
            }
        });
        let begin = format!(
            "local m = assert(require('nginx.memcached'):new()) m:set_timeout(60000) assert(m:connect('127.0.0.1', {port}))"
        );
        for (code, expected) in [
            ("assert(m:set('a b', 'x\\r\\ny', 0, 7)) local v, flags = m:get('a b') return #v .. flags", "47"),
            ("local v, flags, err = m:get('none') return tostring(v) .. tostring(err)", "nilnil"),
            ("m:set('n', 40) return m:incr('n', 2) .. select(2, m:incr('none', 1))", "42NOT_FOUND"),
            ("m:set('d', 1) return m:delete('d') .. select(2, m:delete('d'))", "1NOT_FOUND"),
            ("assert(m:set_keepalive(10000, 4)) return select(3, m:get('a'))", "closed"),
        ] {
            assert_eq!(found(&format!("{begin} {code}")).await, expected, "{code}");
        }
    });
}
