//! Files of APISIX's.
use super::*;
use crate::plugins;

fn read(text: &str) -> Result<Document, Vec<String>> {
    let plugins = plugins::bundled();
    super::read(text, Format::Yaml, &plugins)
        .map(|read| read.document)
        .map_err(|invalid| invalid.errors.iter().map(ToString::to_string).collect())
}

const WHOLE: &str = "
routes:
  - id: 1
    uri: /hello
    service_id: s
    plugin_config_id: p
services:
  - id: s
    upstream_id: u
upstreams:
  - id: u
    type: roundrobin
    nodes:
      \"127.0.0.1:1980\": 1
plugin_configs:
  - id: p
    plugins:
      key-auth: {}
consumers:
  - id: jack/credentials/c
    plugins:
      key-auth:
        key: auth-two
  - username: jack
    group_id: g
    plugins:
      key-auth:
        key: auth-one
consumer_groups:
  - id: g
    plugins:
      request-id: {}
global_rules:
  - id: g
    plugins:
      prometheus: {}
#END
";

#[test]
fn objects_become_entities_whatever_their_order() {
    let document = read(WHOLE).unwrap();
    assert_eq!((document.routes.len(), document.upstreams.len(), document.targets.len()), (1, 1, 1));
    assert_eq!(document.services.len(), 2, "the upstream's and the service's");
    assert_eq!(
        (document.plugins.len(), document.custom.iter().map(|(_, keys)| keys.len()).sum::<usize>()),
        (3, 2)
    );
    let keys: Vec<_> = document.apisix_objects.iter().map(|object| object.key.as_str()).collect();
    assert_eq!(keys.len(), 8);
    assert!(keys.contains(&"routes/1") && keys.contains(&"consumers/jack/credentials/c"), "{keys:?}");
}

#[test]
fn everything_wrong_is_said_at_its_object() {
    let text = "routes:\n  - uri: a\n  - uri: /b\n    upstream_id: 9\nplanets: []\nconsumers:\n  - username: a\n    \
                plugins: {key-auth: {key: k}}\n  - username: b\n    plugins: {key-auth: {key: k}}\n#END\n";
    let problems = read(text).unwrap_err();
    let expected = [
        "2:10: routes[0].uri: ",
        "4:18: routes[1].upstream_id: names no upstream of the file",
        "5:1: `planets` is not available here",
        "9:5: consumers[1]: keyauth_credentials: the same key is here twice",
    ];
    assert_eq!(problems.len(), expected.len(), "{problems:#?}");
    for (problem, expected) in problems.iter().zip(expected) {
        assert!(problem.starts_with(expected), "{problem}");
    }
}

#[test]
fn everything_wrong_with_an_object_is_said_at_its_field() {
    let text = "routes:
  - uri: /a
    service_id: s
    plugins:
      limit-count:
        count: 0
        time_window: 60
      wolf-rbac: {}
      request-validation:
        body_schema: {type: objct}
    upstream:
      type: robin
      certs: []
      nodes: {\"a:1\": 1}
services:
  - id: s
    upstream_id: u
upstreams:
  - id: u
    nodes: {\"a:x\": 1}
consumers:
  - username: ann
    plugins: {key-auth: {kee: hunter2, _meta: {disabled: true}}}
routers: []
ssls: {}
#END
";
    let problems = read(text).unwrap_err();
    let expected = [
        "6:16: routes[0].plugins.limit-count.count: ",
        "8:7: routes[0].plugins.wolf-rbac: no such plugin; available: ",
        "10:29: routes[0].plugins.request-validation.body_schema.type: `objct` is not one of the types string, number, ",
        "12:13: routes[0].upstream.type: ",
        "13:7: routes[0].upstream.certs: is not available here",
        "20:12: upstreams[0].nodes: node \"a:x\": expected host:port",
        "23:25: consumers[0].plugins.key-auth.key: required",
        "23:48: consumers[0].plugins.key-auth._meta: unknown field `disabled`",
        "24:1: `routers` is not available here",
        "25:7: ssls: expected a list, got a mapping",
    ];
    assert_eq!(problems.len(), expected.len(), "{problems:#?}");
    for (problem, expected) in problems.iter().zip(expected) {
        assert!(problem.starts_with(expected), "{problem}");
    }
    assert!(!problems.concat().contains("hunter2"), "{problems:#?}");
}

#[test]
fn members_that_no_plugin_has_are_kept_and_warned_of_one_by_one() {
    let text = "routes:
  - uri: /a
    upstream: {nodes: {\"a:1\": 1}, retry_timeout: 3}
    plugins:
      limit-count: {count: 1, time_window: 60, rejected_cod: 503, _meta: {disable: true}}
      response-rewrite:
        filters:
          - {regex: a, replace: b, scoop: once}
        headers: {set: {scoop: once}}
consumers:
  - username: ann
    plugins:
      key-auth: {key: hunter2, hide_credential: true}
      limit-count: {count: 1, time_window: 1, zzz: hunter2}
#END
";
    let parsed = super::read(text, Format::Yaml, &plugins::bundled()).unwrap();
    let found: Vec<_> = parsed.ignored_fields.iter().map(ToString::to_string).collect();
    let no_member = "without effect: the plugin has no such member";
    let expected = [
        "2:5: routes[0]: upstream: `retry_timeout` has no effect here".to_owned(),
        format!(
            "5:48: routes[0].plugins.limit-count.rejected_cod: {no_member}; did you mean `rejected_code`?"
        ),
        format!(
            "8:36: routes[0].plugins.response-rewrite.filters[0].scoop: {no_member}; did you mean `scope`?"
        ),
        format!("13:32: consumers[0].plugins.key-auth.hide_credential: {no_member}"),
        format!("14:47: consumers[0].plugins.limit-count.zzz: {no_member}"),
    ];
    assert_eq!(found, expected);
    let route =
        parsed.document.apisix_objects.iter().find(|object| object.key.starts_with("routes/")).unwrap();
    assert_eq!(route.value["plugins"]["limit-count"]["rejected_cod"], 503);
}

#[test]
fn a_file_without_its_end_is_half_written() {
    let problems = read(WHOLE.trim_end().trim_end_matches("#END")).unwrap_err();
    assert!(problems[0].contains("#END"), "{problems:?}");
}

#[test]
fn a_file_that_looks_like_apisixs_is_told_how_to_be_read_as_one() {
    let unmarked = |text: &str| super::unmarked(text, Format::Yaml).map(|problem| problem.message);
    assert!(unmarked("routes: [{uri: /a}]\n").unwrap().contains("`#END`"));
    assert_eq!(unmarked("_format_version: \"3.0\"\nroutes: [{uri: /a}]\n"), None);
    assert_eq!(unmarked("routes: [{paths: [/a]}]\n"), None);
}

#[test]
fn files_are_apisixs_by_their_end_or_their_name() {
    assert!(is_apisixs(None, WHOLE));
    assert!(is_apisixs(Some(Path::new("conf/apisix.yaml")), ""));
    assert!(!is_apisixs(Some(Path::new("kong.yml")), "_format_version: \"3.0\"\n"));
}
