//! acl over exchanges in memory.

use crate::PLUGINS;
use serde_json::json;
use weir_plugin::testing::{Gateway, Outcome, check_cases, entity, id, run};
use weir_plugin::{ConsumerIndex, Credential, Json};

#[test]
fn cases() {
    check_cases(PLUGINS, "acl", include_str!("cases.json"));
}

/// Alice is staff and a friend, the guest is a visitor, Bob is in no group.
fn gateway() -> Gateway {
    let mut gateway = Gateway::new(PLUGINS);
    let acl = |number, consumer, group: &str| {
        entity(json!({ "id": id(number), "consumer": id(consumer), "group": group }))
    };
    gateway.document.acls = vec![acl(0xc1, 1, "staff"), acl(0xc2, 1, "friends"), acl(0xc3, 3, "visitors")];
    gateway
}

#[derive(Clone, Copy)]
enum Caller {
    Nobody,
    Alice,
    Bob,
    Guest,
}

fn send(gateway: &Gateway, config: &Json, caller: Caller, groups: &[&str]) -> Outcome {
    let plugin = gateway.plugin("acl", config.clone()).unwrap();
    let mut exchange = gateway.exchange("GET /");
    let credential = Credential { id: id(9), identifier: None };
    match caller {
        Caller::Nobody => {}
        Caller::Alice => exchange.authenticate(ConsumerIndex(0), credential),
        Caller::Bob => exchange.authenticate(ConsumerIndex(1), credential),
        Caller::Guest => exchange.authenticate_anonymous(ConsumerIndex(2)),
    }
    if !groups.is_empty() {
        exchange.set_authenticated_groups(groups.iter().map(|group| (*group).to_owned()).collect());
    }
    run(&[&*plugin], exchange)
}

#[test]
fn consumers_pass_by_the_groups_that_they_are_in() {
    use Caller::*;
    let gateway = gateway();
    for (config, expected) in [
        (json!({ "allow": ["staff"] }), [401, 200, 403, 403]),
        (json!({ "allow": ["x", "friends"] }), [401, 200, 403, 403]),
        (json!({ "allow": ["visitors"], "deny": [] }), [401, 403, 403, 200]),
        (json!({ "allow": ["Staff", "staf"] }), [401, 403, 403, 403]),
        (json!({ "deny": ["staff"] }), [401, 403, 200, 200]),
        (json!({ "deny": ["x"] }), [401, 200, 200, 200]),
        (json!({ "deny": ["visitors"] }), [401, 200, 200, 403]),
    ] {
        let status = |caller| send(&gateway, &config, caller, &[]).status();
        assert_eq!([Nobody, Alice, Bob, Guest].map(status), expected, "{config}");
    }
}

#[test]
fn an_anonymous_consumer_without_groups_is_nobody() {
    let mut gateway = gateway();
    gateway.document.acls.pop();
    for config in [json!({ "allow": ["staff"] }), json!({ "deny": ["staff"] })] {
        assert_eq!(send(&gateway, &config, Caller::Guest, &[]).status(), 401, "{config}");
    }
}

#[test]
fn the_upstream_is_told_the_groups() {
    let gateway = gateway();
    let told = |config: Json, caller, groups: &[&str]| {
        let outcome = send(&gateway, &config, caller, groups);
        assert_eq!(outcome.status(), 200);
        ["X-Consumer-Groups", "X-Authenticated-Groups"]
            .map(|name| outcome.upstream_header(name).map(str::to_owned))
    };
    let said = |text: &str| Some(text.to_owned());
    assert_eq!(told(json!({ "allow": ["staff"] }), Caller::Alice, &[]), [said("staff, friends"), None]);
    assert_eq!(told(json!({ "deny": ["x"] }), Caller::Bob, &[]), [said(""), None]);
    assert_eq!(
        told(json!({ "allow": ["staff"], "hide_groups_header": true }), Caller::Alice, &[]),
        [None, None]
    );
    assert_eq!(told(json!({ "allow": ["b"] }), Caller::Nobody, &["a", "b"]), [None, said("a, b")]);
}

#[test]
fn groups_of_an_authentication_plugin_are_asked_about_where_it_knows_no_consumer() {
    use Caller::*;
    let gateway = gateway();
    let statuses = |config: Json, groups: &[&str]| {
        [Nobody, Alice, Bob, Guest].map(|caller| send(&gateway, &config, caller, groups).status())
    };
    assert_eq!(statuses(json!({ "allow": ["staff"] }), &["visitors"]), [403, 200, 403, 403]);
    assert_eq!(statuses(json!({ "allow": ["visitors"] }), &["staff"]), [403, 403, 403, 403]);
    assert_eq!(statuses(json!({ "deny": ["staff"] }), &["staff"]), [403, 403, 200, 403]);
    let always = json!({ "allow": ["staff"], "always_use_authenticated_groups": true });
    assert_eq!(statuses(always.clone(), &["staff"]), [200, 200, 200, 200]);
    assert_eq!(statuses(always.clone(), &["visitors"]), [403, 403, 403, 403]);
    assert_eq!(statuses(always, &[]), [401, 200, 403, 403]);
}
