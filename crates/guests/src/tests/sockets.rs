//! Sockets, to real servers.

use super::waiting::{on_worker, value_in};
use super::{gateway, settings};
use crate::{LuaSettings, UntrustedLua};
use std::sync::Arc;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UdpSocket, UnixListener};
use tokio::task::spawn_local;

/// What code returns that has the port of a server as `port`. The server answers each line: `say TEXT` with the text in
/// which `|` stands for an end of line, `close` by closing, `count` with the number of its connections.
fn served(code: &str) -> String {
    on_worker(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        spawn_local(async move {
            for number in 1.. {
                let (stream, _) = listener.accept().await.unwrap();
                spawn_local(serve(stream, number));
            }
        });
        let begin = format!("local port, s = {port}, ngx.socket.tcp()");
        value_in(&gateway(settings(UntrustedLua::On)), &format!("{begin} {code}")).await
    })
}

async fn serve(mut stream: TcpStream, number: u32) {
    let (mut line, mut byte) = (String::new(), [0]);
    while stream.read_exact(&mut byte).await.is_ok() {
        if byte != *b"\n" {
            line.push(char::from(byte[0]));
            continue;
        }
        let answer = match line.split_once(' ') {
            Some(("say", text)) => text.replace('|', "\r\n"),
            None if line == "count" => format!("{number}\n"),
            _ => return,
        };
        if stream.write_all(answer.as_bytes()).await.is_err() {
            return;
        }
        line.clear();
    }
}

#[test]
fn what_is_received_is_what_code_asks_for() {
    const CONNECT: &str = "assert(s:connect('127.0.0.1', port)) ";
    for (code, expected) in [
        ("assert(s:send('say one|two|\\n') == 13) return s:receive() .. s:receive('*l')", "onetwo"),
        (
            "s:send({ 'say ', { 'a', 1 }, 'bc|\\n' }) return s:receive(2) .. s:receive('2') .. s:receive(0)",
            "a1bc",
        ),
        ("s:send('say rest\\nclose\\n') return s:receive('*a')", "rest"),
        (
            "s:send('say rest\\nclose\\n') local d, e, p = s:receive(9) return tostring(d) .. e .. p",
            "nilclosedrest",
        ),
        ("s:send('close\\n') s:receive() return select(2, s:receive())", "closed"),
        ("s:settimeout({}) s:settimeout() s:send('say kept|\\n') return s:receive()", "kept"),
        ("s:send('say abc\\n') return s:receiveany(100)", "abc"),
        (
            "s:settimeout(20) local d, e, p = s:receive(1) s:send('say x\\n') s:settimeout(0) return tostring(d) .. e .. p .. s:receive(1)",
            "niltimeoutx",
        ),
        (
            "s:settimeouts(1000, 1000, 20) s:send('say ab\\n') local _, e, p = s:receive(3) return e .. p",
            "timeoutab",
        ),
        ("s:send('say one--two--|\\n') local r = s:receiveuntil('--') return r() .. '+' .. r()", "one+two"),
        (
            "s:send('say one--two|\\n') local r = s:receiveuntil('--', { inclusive = true }) return r() .. s:receive()",
            "one--two",
        ),
        (
            "s:send('say abcde--f|\\n') local r, t = s:receiveuntil('--'), {} while true do local d = r(2) if not d then break end t[#t + 1] = d end \
          return table.concat(t, ',') .. s:receive()",
            "ab,cd,ef",
        ),
        (
            "s:close() return select(2, s:send('x')) .. select(2, s:close()) .. select(2, s:receive()) .. select(2, s:setkeepalive())",
            "closedclosedclosedclosed",
        ),
        ("s:send(print)", "bad argument to send: function not supported"),
        ("s:receive('*x')", "bad argument #1 to 'receive' (bad pattern argument)"),
        ("return select(2, s:receiveuntil(''))", "pattern is empty"),
        (
            "local t = ngx.thread.spawn(function() return s:receive() end) local _, e = s:receive() s:send('say both|\\n') \
          return e .. select(2, ngx.thread.wait(t))",
            "socket busy readingboth",
        ),
        (
            "local x = ('x'):rep(3e6) local t = ngx.thread.spawn(function() return s:send('say ' .. x .. '\\n') end) local d = s:receive(#x) \
          return tostring(d == x) .. select(2, ngx.thread.wait(t)) - #x",
            "true5",
        ),
    ] {
        let found = served(&format!("{CONNECT}{code}"));
        assert!(found == expected || found.ends_with(&format!(": {expected}")), "{code}: {found}");
    }
}

#[test]
fn connections_fail_as_in_openresty() {
    for (code, expected) in [
        ("return select(2, s:connect('127.0.0.1', 1))", "connection refused"),
        (
            "return select(2, s:connect('nowhere.invalid', 80)):match('^nowhere.invalid could not be resolved')",
            "nowhere.invalid could not be resolved",
        ),
        ("return select(2, s:connect('127.0.0.1', 70000))", "bad port number: 70000"),
        ("return select(2, s:connect('unix:/nowhere/at/all'))", "no such file or directory"),
        ("return select(2, s:sslhandshake())", "closed"),
        ("return select(2, s:connect('127.0.0.1'))", "missing the port number"),
        ("return select(2, ngx.socket.connect('127.0.0.1', 1))", "connection refused"),
        ("return select(2, ngx.socket.stream():connect('127.0.0.1', 1))", "connection refused"),
        ("return select(2, s:setclientcert('x', 'y'))", "bad client cert type"),
        ("return tostring(s:setclientcert())", "true"),
        ("return select(2, s:getreusedtimes())", "closed"),
    ] {
        let found = served(code);
        assert!(found == expected || found.ends_with(&format!(": {expected}")), "{code}: {found}");
    }
}

#[test]
fn connections_are_kept_and_used_again() {
    let ask = "local function ask(options) local s = ngx.socket.tcp() assert(s:connect('127.0.0.1', port, options)) s:send('count\\n') \
               return s, s:receive() .. ':' .. s:getreusedtimes() end ";
    for (code, expected) in [
        (
            "local a, x = ask() assert(a:setkeepalive() == 1) local b, y = ask() return x .. ' ' .. y",
            "1:0 1:1",
        ),
        (
            "local a, x = ask({ pool = 'a' }) a:setkeepalive() local b, y = ask({ pool = 'b' }) return x .. ' ' .. y",
            "1:0 2:0",
        ),
        (
            "local a = ask() local b = ask() a:setkeepalive(0, 1) b:setkeepalive(0, 1) local _, x = ask() local _, y = ask() return x .. ' ' .. y",
            "2:1 3:0",
        ),
        ("local a = ask() a:setkeepalive(1) ngx.sleep(0.02) local _, x = ask() return x", "2:0"),
        (
            "local a = ask() a:send('close\\n') a:setkeepalive() ngx.sleep(0.05) local _, x = ask() return x",
            "2:0",
        ),
        (
            "local a = ask() a:send('say xy\\n') a:receive(1) return select(2, a:setkeepalive())",
            "unread data in buffer",
        ),
        ("local a = ask() a:setkeepalive() return select(2, a:receive())", "closed"),
    ] {
        assert_eq!(served(&format!("{ask}{code}")), expected, "{code}");
    }
}

#[test]
fn sockets_have_a_limit() {
    let code = "local open, kept = 0, {} for i = 1, 5000 do local s = ngx.socket.udp() local ok, err = s:setpeername('127.0.0.1', 9) \
                if not ok then return open .. ' ' .. err end open, kept[i] = open + 1, s end";
    let patient = LuaSettings { timeout: std::time::Duration::from_secs(60), ..settings(UntrustedLua::On) };
    // A process may have fewer files open than that.
    let found = on_worker(async { value_in(&gateway(patient.clone()), code).await });
    assert!(found == "4096 too many open sockets" || found.contains("Too many open files"), "{found}");
    let code = "for i = 1, 6000 do local s = ngx.socket.udp() assert(s:setpeername('127.0.0.1', 9)) if i % 500 == 0 then collectgarbage() end end return 'done'";
    let found = on_worker(async { value_in(&gateway(patient), code).await });
    assert!(found == "done" || found.contains("Too many open files"), "{found}");
}

#[test]
fn datagrams_come_and_go() {
    on_worker(async {
        let peer = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let port = peer.local_addr().unwrap().port();
        spawn_local(async move {
            let mut datagram = [0; 100];
            loop {
                let (len, from) = peer.recv_from(&mut datagram).await.unwrap();
                peer.send_to(&[b"got ", &datagram[..len]].concat(), from).await.unwrap();
            }
        });
        let gateway = gateway(settings(UntrustedLua::On));
        let code = format!(
            "local s = ngx.socket.udp() assert(s:setpeername('127.0.0.1', {port})) assert(s:send({{ 'a', 'b' }}) == 1) \
             local all = s:receive() s:send('abc') local part = s:receive(5) s:settimeout(10) local _, e = s:receive() \
             return all .. part .. e .. s:close() .. select(2, s:send('x'))"
        );
        assert_eq!(value_in(&gateway, &code).await, "got abgot atimeout1closed");
    });
}

#[test]
fn unix_sockets_and_tls_are_streams_too() {
    on_worker(async {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("server");
        let listener = UnixListener::bind(&path).unwrap();
        spawn_local(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            stream.write_all(b"unix\n").await.unwrap();
        });
        let gateway = gateway(settings(UntrustedLua::On));
        let code = format!(
            "local s = ngx.socket.tcp() assert(s:connect('unix:{}')) return s:receive()",
            path.display()
        );
        assert_eq!(value_in(&gateway, &code).await, "unix");

        let port = tls_server().await;
        let code = format!(
            "local s = ngx.socket.tcp() assert(s:connect('127.0.0.1', {port})) assert(s:sslhandshake(nil, 'server.test', false)) \
             s:send('ping') local a = s:receive(4) s:setkeepalive() assert(s:connect('127.0.0.1', {port})) assert(s:sslhandshake()) \
             s:send('pong') return a .. s:receive(4) .. s:getreusedtimes()"
        );
        assert_eq!(value_in(&gateway, &code).await, "pingpong1");
        let code = format!(
            "local s = ngx.socket.tcp() assert(s:connect('127.0.0.1', {port})) return select(2, s:sslhandshake(nil, 'server.test', true))"
        );
        let refused = value_in(&gateway, &code).await;
        assert!(refused.contains("lua_ssl_trusted_certificate"), "{refused}");
    });
}

/// A server that sends back what it gets.
async fn tls_server() -> u16 {
    let made = rcgen::generate_simple_self_signed(["server.test".to_owned()]).unwrap();
    let key = rustls::pki_types::PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let config =
        config.unwrap().with_no_client_auth().with_single_cert(vec![made.cert.der().clone()], key).unwrap();
    let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    spawn_local(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let acceptor = acceptor.clone();
            spawn_local(async move {
                let Ok(stream) = acceptor.accept(stream).await else { return };
                let (mut from, mut to) = tokio::io::split(stream);
                let _ = tokio::io::copy(&mut from, &mut to).await;
            });
        }
    });
    port
}

#[test]
fn the_sandbox_has_sockets_where_settings_say_so() {
    let code = "return tostring(ngx.socket and ngx.socket.tcp ~= nil) .. tostring(ngx.is_subrequest)";
    let in_sandbox = |settings| on_worker(async { value_in(&gateway(settings), code).await });
    assert_eq!(in_sandbox(LuaSettings::default()), "nilfalse");
    let sandbox_environment = vec!["ngx.socket.tcp".to_owned()];
    assert_eq!(in_sandbox(LuaSettings { sandbox_environment, ..LuaSettings::default() }), "truefalse");
}

#[test]
fn what_sockets_hold_is_bounded() {
    on_worker(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        spawn_local(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            while stream.write_all(&[b'x'; 65536]).await.is_ok() {}
        });
        let code = format!(
            "local s = ngx.socket.tcp() assert(s:connect('127.0.0.1', {port})) return select(2, s:receive('*l'))"
        );
        let found = value_in(&gateway(settings(UntrustedLua::On)), &code).await;
        assert_eq!(found, "no memory: sockets hold too many bytes");
    });
}
