//! Clients of HTTP and Redis, to real servers.

use super::waiting::{on_worker, value_in};
use super::{gateway, settings};
use crate::{LuaSettings, UntrustedLua};
use std::process::{Child, Command, Stdio};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::spawn_local;

/// The head of a message, and what has arrived of its body.
async fn message(stream: &mut TcpStream) -> Option<String> {
    let (mut read, mut piece) = (String::new(), [0; 4096]);
    loop {
        if let Some((head, body)) = read.split_once("\r\n\r\n") {
            let length = head.lines().find_map(|line| line.strip_prefix("Content-Length: "));
            let length = length.map_or(0, |length| length.parse().unwrap());
            let is_whole = if head.contains("Transfer-Encoding: chunked") {
                body.ends_with("0\r\n\r\n")
            } else {
                body.len() >= length
            };
            if is_whole {
                return Some(read);
            }
        }
        let len = stream.read(&mut piece).await.ok().filter(|len| *len > 0)?;
        read += std::str::from_utf8(&piece[..len]).unwrap();
    }
}

/// Answers each request: `/echo` with the request, `/n` with the number of the connection, others with what the last
/// segment of the path says, in which `|` is an end of line; the connection is closed after it.
async fn serve(mut stream: TcpStream, number: u32) {
    while let Some(request) = message(&mut stream).await {
        let target = request.split(' ').nth(1).unwrap();
        let body = match target {
            "/n" => number.to_string(),
            target if target.starts_with("/echo") => request.clone(),
            target => {
                let answer = target[1..].replace("%20", " ").replace('|', "\r\n");
                stream.write_all(answer.as_bytes()).await.unwrap();
                return;
            }
        };
        let head =
            format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\nX-One: a\r\nx-one: b\r\n\r\n", body.len());
        stream.write_all((head + &body).as_bytes()).await.unwrap();
    }
}

async fn http_server() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    spawn_local(async move {
        for number in 1.. {
            let (stream, _) = listener.accept().await.unwrap();
            spawn_local(serve(stream, number));
        }
    });
    port
}

#[track_caller]
fn check_http(cases: &[(&str, &str)]) {
    on_worker(async {
        let gateway = gateway(settings(UntrustedLua::On));
        for (code, expected) in cases {
            let port = http_server().await;
            let begin = format!(
                "local http = require('resty.http') local c, base = http.new(), 'http://127.0.0.1:{port}' \
                 local function get(target, options) return c:request_uri(base .. target, options) end"
            );
            let found = value_in(&gateway, &format!("{begin} {code}")).await;
            let shown = found.replace("\r\n", "|").replace(&port.to_string(), "PORT");
            assert_eq!(shown, *expected, "{code}");
        }
    });
}

#[test]
fn http_requests_are_sent_as_asked() {
    let agent = "User-Agent: lua-resty-http/0.17.2 (Lua) weir";
    check_http(&[
        (
            "local r = get('/echo?a=1') return r.body:match('^[^\\r]*') .. r.body:match('Host: [^\\r]*')",
            "GET /echo?a=1 HTTP/1.1Host: 127.0.0.1:PORT",
        ),
        ("return get('/echo').body:match('User%-Agent: [^\\r]*')", agent),
        (
            "return get('/echo', { method = 'POST', body = 'hello' }).body:match('Content%-Length: %d+') .. get('/echo', { method = 'POST', body = 'hello' }).body:match('.....$')",
            "Content-Length: 5hello",
        ),
        ("return get('/echo', { method = 'POST', body = { 'a', 'bc' } }).body:match('...$')", "abc"),
        ("return get('/echo', { method = 'POST' }).body:match('Content%-Length: %d+')", "Content-Length: 0"),
        (
            "return get('/echo', { query = { b = '1 2' }, path = '/echo/x y' }).body:match('^[^\\r]*')",
            "GET /echo/x%20y?b=1%202 HTTP/1.1",
        ),
        (
            "return get('/echo', { headers = { ['x-a'] = { '1', '2' }, host = 'other' } }).body:gsub('.*x%-a: 1\\r\\nx%-a: 2.*', 'both')",
            "both",
        ),
        ("return select(2, get('/echo', { headers = { ['x-a'] = '1\\r\\nb: c' } }))", "invalid header: x-a"),
        (
            "return select(2, get('/echo', { method = 'POST', body = function() end }))",
            "Request body is a function but a length or chunked encoding is not specified",
        ),
        (
            "local n = 0 local function body() n = n + 1 return n < 3 and 'piece' or nil end \
          return get('/echo', { method = 'POST', headers = { ['Transfer-Encoding'] = 'chunked' }, body = body }).body:match('\\r\\n\\r\\n(.*)')",
            "5|piece|5|piece|0||",
        ),
    ]);
}

#[test]
fn http_responses_are_read() {
    check_http(&[
        (
            "local r = get('/n') return r.status .. r.reason .. r.body .. tostring(r.has_body) .. r.headers['CONTENT_LENGTH'] .. table.concat(r.headers['x-one'], ',')",
            "200OK1true1a,b",
        ),
        ("get('/n') return get('/n').body", "1"),
        ("get('/n', { keepalive = false }) return get('/n').body", "2"),
        ("return get('/HTTP/1.1 200 OK|Transfer-Encoding: chunked||3|abc|2;x=y|de|0|||').body", "abcde"),
        ("return get('/HTTP/1.1 200 OK||until the end').body", "until the end"),
        ("return get('/HTTP/1.0 404 Not Found|Content-Length: 2||no').reason", "Not Found"),
        ("return get('/HTTP/1.1 100 Continue||HTTP/1.1 201 Created|Content-Length: 0||').status", "201"),
        (
            "local r = get('/HTTP/1.1 204 No Content|Content-Length: 5||') return tostring(r.has_body) .. #r.body",
            "false0",
        ),
        (
            "local r = get('/HTTP/1.1 200 OK|Content-Length: 5||', { method = 'HEAD' }) return tostring(r.has_body) .. #r.body",
            "false0",
        ),
        ("return get('/HTTP/1.1 302 Found|Location: /n|Content-Length: 0||').headers.location", "/n"),
        ("return select(2, get('/HTTP/1.1 200 OK|Content-Length: 5||abc'))", "closed"),
        (
            "return select(2, get('/HTTP/1.1 200 OK|Transfer-Encoding: chunked||zz|'))",
            "unable to read chunk size",
        ),
        (
            "return select(2, get('/no http at all||'))",
            "couldn't parse HTTP response status line: no http at all",
        ),
        ("return select(2, get('/'))", "closed"),
        ("return select(2, c:request_uri('http://127.0.0.1:1/'))", "connection refused"),
        ("return select(2, c:request_uri('ftp://127.0.0.1/'))", "bad uri: ftp://127.0.0.1/"),
        (
            "local body, status, headers = require('socket.http').request(base .. '/n') return body .. status .. headers['x-one']",
            "1200a, b",
        ),
        (
            "local t = {} local ok, status = require('ssl.https').request({ url = base .. '/n', sink = function(p) t[#t + 1] = p end }) return ok .. status .. t[1]",
            "12001",
        ),
    ]);
}

#[test]
fn http_can_be_used_step_by_step() {
    check_http(&[
        (
            "assert(c:connect({ scheme = 'http', host = '127.0.0.1', port = tonumber(base:match('%d+$')) })) local r = c:request({ path = '/HTTP/1.1 200 OK|Content-Length: 6||abcdef' }) \
          local t = {} repeat local p = r.body_reader(4) t[#t + 1] = p until not p return table.concat(t, ',')",
            "abcd,ef",
        ),
        (
            "assert(c:connect('127.0.0.1', base:match('%d+$'))) local r = c:request({ path = '/n' }) return r:read_body() .. c:get_reused_times() .. c:set_keepalive(1000, 2)",
            "101",
        ),
        (
            "assert(c:connect({ host = '127.0.0.1', port = base:match('%d+$') })) c:request({ path = '/n' }):read_body() return c:close()",
            "1",
        ),
        ("return select(2, c:request({ path = '/' }))", "not connected"),
        ("return table.concat(c:parse_uri('https://h.test/a/b?c=d#e'), ' ')", "https h.test 443 /a/b?c=d "),
        ("return table.concat(c:parse_uri('http://[::1]:81?x', false), ' ')", "http [::1] 81 / x"),
        (
            "c:set_timeouts(1000, 1000, 20) return select(2, c:request_uri(base .. '/HTTP/1.1 200 OK|Content-Length: 5||')) or 'none'",
            "closed",
        ),
    ]);
}

/// A server of Redis; killed when dropped.
pub(super) struct Redis(Child, pub(super) u16);

impl Redis {
    pub(super) fn start() -> Self {
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let mut command = Command::new("redis-server");
        command.args([
            "--port",
            &free.to_string(),
            "--bind",
            "127.0.0.1",
            "--save",
            "",
            "--appendonly",
            "no",
        ]);
        Self(command.stdout(Stdio::null()).spawn().expect("is the package `redis-server` installed?"), free)
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        let _ = self.0.kill().and_then(|()| self.0.wait());
    }
}

#[test]
fn redis_is_asked() {
    let redis = Redis::start();
    on_worker(async {
        let gateway = gateway(settings(UntrustedLua::On));
        let begin = format!(
            "local redis = require('resty.redis') local r = redis:new() r:set_timeouts(1000, 1000, 60000) \
             while not r:connect('127.0.0.1', {}) do ngx.sleep(0.02) end",
            redis.1
        );
        for (code, expected) in [
            ("return r:ping()", "PONG"),
            ("return r:set('a', 1) .. r:get('a') .. r:incr('a')", "OK12"),
            ("local v = r:get('none') return tostring(v == ngx.null and v == redis.null)", "true"),
            (
                "local v, e = r:incr('a', 'b') return tostring(v) .. e",
                "falseERR wrong number of arguments for 'incr' command",
            ),
            (
                "r:hmset('h', { x = 1, y = 2 }) local h = r:array_to_hash(r:hgetall('h')) return h.x .. h.y .. #r:hmget('h', 'x', 'none')",
                "122",
            ),
            (
                "r:init_pipeline() r:set('p', 'v') r:get('p') r:incr('p') local t = r:commit_pipeline() return t[1] .. t[2] .. tostring(t[3][1]) .. t[3][2]:sub(1, 3)",
                "OKvfalseERR",
            ),
            ("r:init_pipeline() r:set('p', 'w') r:cancel_pipeline() return r:get('p')", "v"),
            ("return select(2, r:commit_pipeline())", "no pipeline"),
            (
                "return #r:eval('return { 1, { 2, \"three\" } }', 0) .. r:eval('return { 1, { 2, \"three\" } }', 0)[2][2]",
                "2three",
            ),
            ("local big = ('x'):rep(3e6) r:set('big', big) return tostring(r:get('big') == big)", "true"),
            (
                "r:ping() r:set_keepalive(10000, 4) local s = redis:new() s:connect('127.0.0.1', r:get_reused_times() and 1 or 1) return tostring(select(2, r:ping()))",
                "closed",
            ),
            ("r:set_timeout(30) local v, e = r:blpop('nothing', 0) return tostring(v) .. e", "niltimeout"),
            (
                "local got = r:subscribe('news') local p = redis:new() p:connect('127.0.0.1', PORT) p:publish('news', 'hello') local m = r:read_reply() \
              return got[1] .. got[3] .. m[3] .. select(2, r:get('a')) .. r:unsubscribe('news')[3] .. r:get('a')",
                "subscribe1hellosubscribed state02",
            ),
            ("return select(2, r:read_reply())", "not subscribed"),
        ] {
            let code = code.replace("PORT", &redis.1.to_string());
            assert_eq!(value_in(&gateway, &format!("{begin} {code}")).await, expected, "{code}");
        }
    });
}

#[test]
fn the_sandbox_has_clients_where_settings_say_so() {
    on_worker(async {
        let port = http_server().await;
        let code =
            format!("return require('resty.http').new():request_uri('http://127.0.0.1:{port}/n').body");
        let refused = value_in(&gateway(LuaSettings::default()), &code).await;
        assert!(refused.ends_with("require 'resty.http' not allowed within sandbox"), "{refused}");
        let sandbox_requires = vec!["resty.http".to_owned()];
        let settings = LuaSettings { sandbox_requires, ..LuaSettings::default() };
        assert_eq!(value_in(&gateway(settings), &code).await, "1");
    });
}
