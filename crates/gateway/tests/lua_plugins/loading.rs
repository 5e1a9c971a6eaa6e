//! How plugins are found, what is said of those that are not, and which methods run.
use super::Plugins;
use crate::harness::{Gateway, Upstream, eventually};

const EVERY_PHASE: &str = r#"
local ran = require "kong.plugins.mine.ran"
local Mine = { PRIORITY = 10, VERSION = "1.2.3" }
function Mine:init_worker() ran.note("init_worker") end
function Mine:configure(configs) ran.note("configure " .. #configs) end
function Mine:rewrite(conf) ran.note("rewrite " .. conf.__plugin_id:sub(14, 14)) end
function Mine:access(conf)
  ran.note("access")
  kong.service.request.set_header("x-ran", ran.text())
  kong.ctx.plugin.started = true
end
function Mine:header_filter(conf)
  kong.response.set_header("x-phases", ran.text() .. (kong.ctx.plugin.started and " started" or ""))
  kong.response.clear_header("content-length")
end
function Mine:body_filter(conf)
  ngx.arg[1] = ngx.arg[1]:upper()
end
function Mine:log(conf) kong.log.notice("logged by mine") end
return Mine
"#;

const RAN: &str = "local names = {} \
    return { note = function(name) names[#names + 1] = name end, \
             text = function() return table.concat(names, ',') end }";

#[test]
fn every_method_runs_in_its_phase() {
    let plugins = Plugins::mine(EVERY_PHASE);
    plugins.write("mine/ran.lua", RAN);
    let upstream = Upstream::answering("HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nhello\n");
    let gateway = plugins.start_mine(upstream.address);
    let response = gateway.get("/");
    assert_eq!((response.status, response.text()), (200, "HELLO\n"));
    let phases = response.header("x-phases").unwrap();
    assert!(phases.starts_with("init_worker,configure 1,rewrite "), "{phases}");
    assert!(phases.ends_with(",access started"), "{phases}");
    eventually("the log phase has run", || gateway.log().contains("logged by mine"));
}

#[test]
fn methods_of_workers_and_timers_that_fail_are_logged_and_counted() {
    let plugins = Plugins::mine(
        "return { PRIORITY = 10, VERSION = '1.0.0',\n\
         init_worker = function() while true do end end,\n\
         configure = function() ngx.timer.at(0, function() while true do end end) error('boom') end,\n\
         access = function()\n\
           while true do end end }",
    );
    let gateway = plugins.start_mine(Upstream::answering("HTTP/1.1 200 OK\r\n\r\n").address);
    let counted = |reason: &str, count: u32| {
        let line = format!("weir_lua_ended_total{{plugin=\"mine\",reason=\"{reason}\"}} {count}\n");
        eventually(&line, || gateway.status("/metrics").text().contains(&line));
    };
    counted("timeout", 2);
    counted("error", 1);
    let has = |text: &str| eventually(text, || gateway.log().contains(text));
    has("handler.lua:2: the call took more than 50 ms of CPU time (lua_timeout)");
    has("handler.lua:3: boom");
    has("handler.lua:3: the call took more than 50 ms of CPU time (lua_timeout) plugin=mine phase=timer");
    assert_eq!(gateway.get("/").status, 500);
    has("handler.lua:5: the calls for this request took more than 50 ms of CPU time (lua_timeout)");
}

#[test]
fn a_response_phase_has_the_whole_body_and_may_answer() {
    let plugins = Plugins::mine(
        "local Mine = { PRIORITY = 10, VERSION = '1.0' } \
         function Mine:response() \
           kong.response.set_header('x-status', kong.response.get_status()) \
           if kong.request.get_path() == '/exit' then kong.response.exit(418, { short = true }) end \
           if kong.request.get_path() == '/none' then kong.response.exit(204, 'body') end \
         end return Mine",
    );
    let upstream = Upstream::answering("HTTP/1.1 201 Created\r\nContent-Length: 6\r\n\r\nhello\n");
    let gateway = plugins.start_mine(upstream.address);
    let response = gateway.get("/");
    assert_eq!(
        (response.status, response.text(), response.header("x-status")),
        (201, "hello\n", Some("201"))
    );
    let response = gateway.get("/exit");
    assert_eq!((response.status, response.text()), (418, r#"{"short":true}"#));
    assert_eq!(response.header("x-status"), Some("201"), "headers of the response stay, as in Kong");
    let mut client = gateway.connect();
    let response = client.send("GET /none HTTP/1.1\r\nHost: a\r\n\r\n").response();
    assert_eq!((response.status, response.text()), (204, ""));
    let response = client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n").response();
    assert_eq!((response.status, response.text()), (201, "hello\n"), "the connection is in step");
}

#[test]
fn what_a_response_phase_prints_comes_before_the_body() {
    let plugins = Plugins::mine(
        "local Mine = { PRIORITY = 10, VERSION = '1.0' } \
         function Mine:response() \
           ngx.say('first') \
           if kong.request.get_path() == '/wait' then ngx.sleep(0.001) end \
           ngx.print('second ') \
           if kong.request.get_path() == '/eof' then ngx.eof() end \
           if kong.request.get_path() == '/exit' then ngx.exit(200) end \
           if kong.request.get_path() == '/error' then error('no') end \
         end return Mine",
    );
    let upstream = Upstream::answering("HTTP/1.1 201 Created\r\nX-Up: u\r\nContent-Length: 5\r\n\r\nthird");
    let gateway = plugins.start_mine(upstream.address);
    let mut client = gateway.connect();
    for (path, body) in [
        ("/", "first\nsecond third"),
        ("/wait", "first\nsecond third"),
        ("/eof", "first\nsecond "),
        ("/exit", "first\nsecond "),
    ] {
        let response = client.send(format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n")).response();
        assert_eq!(
            (response.status, response.text(), response.header("x-up")),
            (201, body, Some("u")),
            "{path}"
        );
    }
    let failed = gateway.get("/error");
    assert!(failed.status == 500 && !failed.text().contains("first"), "{}", failed.text());
}

#[test]
fn a_response_phase_may_wait_while_other_requests_are_served() {
    let plugins = Plugins::mine(
        "local http = require 'resty.http' \
         local Mine = { PRIORITY = 10, VERSION = '1.0' } \
         function Mine:response() \
           ngx.sleep(0.01) \
           local own = kong.service.response.get_raw_body() \
           local port = kong.service.response.get_header('x-port') \
           if not port then return end \
           local other = assert(http.new():request_uri('http://127.0.0.1:' .. port .. '/')) \
           kong.response.set_header('x-waited', 'yes') \
           kong.response.exit(200, own .. ' and ' .. other.body .. ' and ' .. kong.service.response.get_raw_body()) \
         end return Mine",
    );
    let other = Upstream::answering("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nother");
    let port = other.address.port();
    let upstream = Upstream::start(move |mut peer, _| {
        while let Some(request) = peer.request() {
            let path = request.head.start.split(' ').nth(1).unwrap();
            let port = if path == "/plain" { String::new() } else { format!("X-Port: {port}\r\n") };
            peer.send(format!("HTTP/1.1 200 OK\r\n{port}Content-Length: {}\r\n\r\n{path}", path.len()));
        }
    });
    let gateway = plugins.start_mine(upstream.address);
    std::thread::scope(|scope| {
        for number in 0..8 {
            let gateway = &gateway;
            scope.spawn(move || {
                let path = format!("/{number}");
                let response = gateway.get(&path);
                let expected = format!("{path} and other and {path}");
                assert_eq!(response.text(), expected);
                assert_eq!(response.header("x-waited"), Some("yes"));
                assert_eq!(
                    gateway.get("/plain").text(),
                    "/plain",
                    "code that waits and returns leaves the body"
                );
            });
        }
    });
}

#[test]
fn a_response_phase_runs_for_responses_without_a_body() {
    let plugins = Plugins::mine(
        "local Mine = { PRIORITY = 10, VERSION = '1.0' } \
         function Mine:response() \
           if kong.request.get_header('x-wait') then ngx.sleep(0.001) end \
           kong.response.set_header('x-status', kong.response.get_status()) \
           kong.response.set_header('x-body', '<' .. (kong.service.response.get_raw_body() or 'nil') .. '>') \
           if kong.request.get_header('x-exit') then kong.response.exit(200, 'made') end \
         end return Mine",
    );
    let upstream = Upstream::start(|mut peer, _| {
        while let Some(request) = peer.request() {
            let path = request.head.start.split(' ').nth(1).unwrap().to_owned();
            peer.send(match path.as_str() {
                "/204" => "HTTP/1.1 204 No Content\r\n\r\n",
                "/304" => "HTTP/1.1 304 Not Modified\r\nETag: \"1\"\r\n\r\n",
                _ if request.head.start.starts_with("HEAD") => "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\n",
                _ => "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nhello\n",
            });
        }
    });
    let gateway = plugins.start_mine(upstream.address);
    let mut client = gateway.connect();
    for more in ["", "X-Wait: 1\r\n"] {
        for (method, path, status) in [("GET", "/204", 204), ("GET", "/304", 304), ("HEAD", "/", 200)] {
            let mut ask = |exit: &str| {
                let request = format!("{method} {path} HTTP/1.1\r\nHost: a\r\n{more}{exit}\r\n");
                client.send(request).response_to(method)
            };
            let response = ask("");
            let seen = ["x-status", "x-body"].map(|name| response.header(name).unwrap().to_owned());
            assert_eq!((response.status, response.text()), (status, ""), "{method} {path} {more}");
            assert_eq!(seen, [status.to_string(), "<>".to_owned()], "{method} {path} {more}");
            assert_eq!(
                response.header("content-length"),
                (method == "HEAD").then_some("6"),
                "{method} {path} {more}"
            );
            let response = ask("X-Exit: 1\r\n");
            let body = if method == "HEAD" { "" } else { "made" };
            assert_eq!((response.status, response.text()), (200, body), "{method} {path} {more}");
        }
        let response = client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n").response();
        assert_eq!(response.text(), "hello\n", "the connection is in step");
    }
}

#[test]
fn a_response_phase_does_not_run_for_responses_of_the_gateways_own() {
    let plugins = Plugins::mine(
        "local Mine = { PRIORITY = 10, VERSION = '1.0' } \
         function Mine:access() kong.response.exit(403, 'no') end \
         function Mine:response() kong.response.exit(200, 'never') end return Mine",
    );
    let upstream = Upstream::answering("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    let response = plugins.start_mine(upstream.address).get("/");
    assert_eq!((response.status, response.text()), (403, "no"));
}

#[test]
fn a_plugin_that_is_not_installed_keeps_the_node_from_starting() {
    let (status, said) =
        Gateway::builder("_format_version: '3.0'\n").set("plugins", "bundled,nowhere").fail();
    assert!(!status.success());
    for expected in [
        "nowhere plugin is enabled but not installed",
        "no file './kong/plugins/nowhere/handler.lua'",
        "no file './kong/plugins/nowhere/handler/init.lua'",
        "no file '/usr/local/share/lua/5.1/kong/plugins/nowhere/handler.lua'",
        "lua_package_path",
    ] {
        assert!(said.contains(expected), "{expected}:\n{said}");
    }
}

#[test]
fn a_handler_that_cannot_run_is_refused_with_its_file() {
    for (handler, expected) in [
        ("return { VERSION = '1.0.0' }", r#"its PRIORITY field is not a valid integer number, got: "nil""#),
        ("return { PRIORITY = 1.5, VERSION = '1.0.0' }", r#"got: "1.5""#),
        ("return { PRIORITY = 1 }", r#"its VERSION field does not follow the "x.y.z" format, got: "nil""#),
        ("return { PRIORITY = 1, VERSION = '1.0.0.0' }", r#"got: "1.0.0.0""#),
        (
            "return { PRIORITY = 1, VERSION = '1.0', response = print, body_filter = print }",
            "implements both `response` and `header_filter` or `body_filter` methods",
        ),
        ("return 5", "its handler is a integer"),
        ("return {", "mine/handler.lua:1: unexpected symbol near '<eof>'"),
        ("error('no')", "mine/handler.lua:1: no"),
        ("require 'kong.plugins.mine.nothing'", "module 'kong.plugins.mine.nothing' not found"),
    ] {
        let plugins = Plugins::mine(handler);
        let (status, said) = plugins.builder("mine", "_format_version: '3.0'\n").fail();
        assert!(!status.success());
        assert!(said.contains(expected), "{handler}\nexpected {expected}\nfound {said}");
        assert!(said.contains("mine/handler.lua"), "{said}");
    }
}
