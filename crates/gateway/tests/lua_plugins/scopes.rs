//! What plugins see of a service's response, and for whom they run.
use super::{Plugins, SCHEMA};
use crate::harness::{Upstream, one_route};

#[test]
fn the_services_response_is_what_it_has_sent() {
    let upstream = Upstream::answering("HTTP/1.1 200 OK\r\nX-Up: sent\r\nContent-Length: 0\r\n\r\n");
    let plugins = Plugins::mine(
        "return { PRIORITY = 1, VERSION = '1.0',\n\
           header_filter = function()\n\
             kong.response.set_header('X-Seen', kong.service.response.get_header('X-Up'))\n\
             kong.response.set_header('X-Listed', tostring(kong.service.response.get_headers()['x-new']))\n\
             kong.response.set_header('X-Var', ngx.var.upstream_http_x_up)\n\
           end }",
    );
    let other = "- name: pre-function\n  config:\n    header_filter: [\"kong.response.set_header('X-Up', 'changed') \
                 kong.response.set_header('X-New', 'n')\"]\n";
    let configuration = format!("{}plugins:\n- name: mine\n{other}", one_route(upstream.address));
    let gateway = plugins.builder("mine", &configuration).start();
    let response = gateway.get("/");
    let header = |name: &str| response.header(name).map(str::to_owned);
    let found = ["X-Up", "X-Seen", "X-Listed", "X-Var"].map(header);
    assert_eq!(found.map(Option::unwrap), ["changed", "sent", "nil", "sent"]);
}

#[test]
fn a_plugin_may_be_for_a_consumer_group() {
    let plugins = Plugins::mine(
        "return { PRIORITY = 1, VERSION = '1.0', access = function()\n\
           kong.response.exit(200, 'mine ' .. kong.client.get_consumer().username) end }",
    );
    let upstream = Upstream::echoing();
    let of_group = |name: &str| format!("- name: {name}\n  consumer_group: gold\n");
    let configuration = |plugin: &str| {
        format!(
            "{}plugins:\n- name: key-auth\n{}consumer_groups:\n- name: gold\nconsumers:\n\
             - username: alice\n  groups:\n  - name: gold\n  keyauth_credentials:\n  - key: a\n\
             - username: bob\n  keyauth_credentials:\n  - key: b\n",
            one_route(upstream.address),
            of_group(plugin)
        )
    };
    let gateway = plugins.builder("mine", &configuration("mine")).start();
    let asked = |key: &str| gateway.get(&format!("/?apikey={key}")).text().to_owned();
    assert_eq!(asked("a"), "mine alice");
    assert!(!asked("b").contains("mine"));
    let schema = SCHEMA
        .replace("fields = { {", "fields = { { consumer_group = { type = 'foreign', eq = ngx.null } }, {");
    let refused = Plugins::new(&[
        ("mine/handler.lua", "return { PRIORITY = 1, VERSION = '1.0' }"),
        ("mine/schema.lua", &schema),
    ]);
    let (_, said) = refused.builder("mine", &configuration("mine")).fail();
    assert!(said.contains("value must be null: mine cannot be for a consumer group"), "{said}");
}
