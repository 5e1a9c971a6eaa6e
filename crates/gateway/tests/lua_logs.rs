//! What Lua code leaves in the node's log.
#![allow(clippy::unwrap_used)]

use crate::harness::{Gateway, Upstream, document, eventually, service};
use serde_json::{Value as Json, json};

/// A node that logs all, whose requests run this configuration of pre-function.
fn start(config: &Json) -> (Gateway, Upstream) {
    let upstream = Upstream::start(|mut peer, _| {
        while peer.request().is_some() {
            peer.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
            for chunk in ["one ", "two ", "three"] {
                peer.send(format!("{:x}\r\n{chunk}\r\n", chunk.len()));
            }
            peer.send("0\r\n\r\n");
        }
    });
    let plugins = json!([{ "name": "pre-function", "config": config }]);
    let services = [service("/", upstream.address, "", "")];
    let configuration = document(&services, &format!("plugins: {plugins}\n"));
    (Gateway::builder(&configuration).set("log_level", "debug").start(), upstream)
}

/// The lines of the log that contain a text, once there is one with the text that comes last.
fn lines(gateway: &Gateway, text: &str, last: &str) -> Vec<String> {
    eventually("the log has it", || gateway.log().contains(last));
    gateway.log().lines().filter(|line| line.contains(text)).map(str::to_owned).collect()
}

#[test]
fn levels_of_kong_are_levels_of_the_log() {
    let code = "for _, level in ipairs({ 'emerg', 'alert', 'crit', 'err', 'warn', 'notice', 'info', 'debug' }) do
      kong.log[level]('said at ', level, ' ', 1, ' ', nil)
    end
    kong.log('said without a level') kong.log.deprecation('said of old', { after = '2.5.0', removal = '3.0.0' })
    kong.response.exit(204)";
    let (gateway, _upstream) = start(&json!({ "access": [code] }));
    assert_eq!(gateway.get("/").status, 204);
    let said = lines(&gateway, "[pre-function] said", "said of old");
    let expected = [
        ("ERROR", "said at emerg 1 nil"),
        ("ERROR", "said at alert 1 nil"),
        ("ERROR", "said at crit 1 nil"),
        ("ERROR", "said at err 1 nil"),
        ("WARN", "said at warn 1 nil"),
        ("INFO", "said at notice 1 nil"),
        ("INFO", "said at info 1 nil"),
        ("DEBUG", "said at debug 1 nil"),
        ("INFO", "said without a level"),
        ("WARN", "said of old (deprecated after 2.5.0, scheduled for removal in 3.0.0)"),
    ];
    assert_eq!(said.len(), expected.len(), "{said:#?}");
    for (line, (level, text)) in said.iter().zip(expected) {
        assert!(line.contains(level) && line.contains(text), "{text}: {line}");
    }
}

/// Kong's `info` lies between `notice`, the default, and `debug`.
#[test]
fn information_is_logged_at_its_level_and_not_at_notice() {
    let code =
        "kong.log.info('for information') ngx.log(ngx.INFO, 'by number') kong.log.debug('for debugging')
      kong.log.notice('noticed') kong.response.exit(204)";
    for (level, expected) in
        [("info", &["for information", "by number", "noticed"][..]), ("notice", &["noticed"])]
    {
        let config = json!([{ "name": "pre-function", "config": { "access": [code] } }]);
        let route = "routes: [{name: all, paths: [/]}]";
        let configuration = document(&[], &format!("{route}\nplugins: {config}\n"));
        let gateway = Gateway::builder(&configuration).set("log_level", level).start();
        assert_eq!(gateway.get("/").status, 204);
        let said = lines(&gateway, "[pre-function] ", "noticed");
        assert_eq!(said.len(), expected.len(), "{level}: {said:#?}");
        for (line, text) in said.iter().zip(expected) {
            assert!(line.contains(" INFO ") && line.contains(text), "{level}: {line}");
        }
        assert!(gateway.reload(&configuration).status.success());
        assert!(gateway.log().contains(" INFO reloaded"), "the node's own notices: {}", gateway.log());
    }
}

#[test]
fn inspection_is_switched_off_and_on() {
    let code = "kong.log.inspect('shown', { 1, 2, a = { b = 'c' } }) kong.log.inspect.off() kong.log.inspect('hidden')
      kong.log.inspect.on() kong.log.inspect('shown again') kong.response.exit(204)";
    let (gateway, _upstream) = start(&json!({ "access": [code] }));
    assert_eq!(gateway.get("/").status, 204);
    let shown = lines(&gateway, "[pre-function] ", "shown again");
    let expected = ["\"shown\" { 1, 2,", "  a = {", "    b = \"c\"", "  }", "}", "\"shown again\""];
    assert_eq!(shown.len(), expected.len(), "{shown:#?}");
    for (line, expected) in shown.iter().zip(expected) {
        assert!(line.contains(&format!("DEBUG [pre-function] {expected} place=")), "{line}");
    }
}

#[test]
fn code_that_fails_for_a_body_is_logged_once_for_the_request() {
    let config = json!({
        "body_filter": ["error('no part for ' .. kong.request.get_path())"],
        "log": ["kong.log.notice('logged ', kong.request.get_path())"],
    });
    let (gateway, _upstream) = start(&config);
    for path in ["/first", "/second"] {
        let response = gateway.get(path);
        assert_eq!((response.status, response.text()), (200, "one two three"));
        let failures = lines(&gateway, &format!("no part for {path}"), &format!("logged {path}"));
        assert_eq!(failures.len(), 1, "{failures:#?}");
        assert!(failures[0].contains("Lua failed") && failures[0].contains("body_filter"), "{failures:#?}");
    }
}
