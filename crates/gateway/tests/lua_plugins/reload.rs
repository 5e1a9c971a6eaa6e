//! Files of plugins that change while a node runs.
use super::{Plugins, SCHEMA};
use crate::harness::{Upstream, one_route};

fn handler(version: &str) -> String {
    format!(
        "local text = 'none' \
         return {{ PRIORITY = 10, VERSION = '1.0.0', \
           init_worker = function() text = '{version}' end, \
           access = function() kong.response.exit(200, text) end }}"
    )
}

#[test]
fn a_reload_runs_the_files_as_they_are_now() {
    let plugins = Plugins::mine(&handler("one"));
    let configuration = format!(
        "{}plugins:\n- name: mine\n",
        one_route(Upstream::answering("HTTP/1.1 200 OK\r\n\r\n").address)
    );
    let gateway = plugins.builder("mine", &configuration).start();
    assert_eq!(gateway.get("/").text(), "one");
    plugins.write("mine/handler.lua", &handler("two"));
    assert_eq!(gateway.get("/").text(), "one", "files are read when the node is told to");
    assert!(gateway.reload(&configuration).status.success());
    assert_eq!(gateway.get("/").text(), "two");
    plugins.write("mine/handler.lua", "return {");
    let refused = gateway.reload(&configuration);
    let said = String::from_utf8_lossy(&refused.stderr).into_owned() + &gateway.log();
    assert!(!refused.status.success() && said.contains("mine/handler.lua:1: unexpected symbol"), "{said}");
    assert_eq!(gateway.get("/").text(), "two");
    plugins.write("mine/handler.lua", &handler("three"));
    assert!(!gateway.reload("_format_version: 5").status.success());
    assert_eq!(gateway.get("/").text(), "two", "code and configuration go together");
    plugins.write(
        "mine/schema.lua",
        &SCHEMA.replace("fields = {} }", "fields = { { a = { type = 'string' } } } }"),
    );
    let configured = configuration.replace("name: mine", "name: mine\n  config: {a: x}");
    assert!(gateway.reload(&configured).status.success(), "{}", gateway.log());
    assert_eq!(gateway.get("/").text(), "three");
}
