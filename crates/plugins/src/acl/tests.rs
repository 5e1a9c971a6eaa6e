//! acl over exchanges in memory.

use super::group::Membership;
use super::warnings::unknown_groups;
use crate::PLUGINS;
use serde_json::json;
use weir_plugin::testing::{Gateway, Outcome, check_cases, custom, entity, id, run};
use weir_plugin::{ConsumerIndex, Credential, Json};

#[test]
fn cases() {
    check_cases(PLUGINS, "acl", include_str!("cases.json"));
}

/// Alice is staff and a friend, the guest is a visitor, Bob is in no group.
fn gateway() -> Gateway {
    let mut gateway = Gateway::new(PLUGINS);
    gateway.document.custom.set([member(1, "staff"), member(1, "friends"), member(3, "visitors")]);
    gateway
}

fn member(consumer: u128, group: &str) -> Membership {
    custom(json!({ "id": id(0xc1), "consumer": id(consumer), "group": group }))
}

#[test]
fn groups_that_no_consumer_is_in_are_warned_of() {
    let mut gateway = gateway();
    let plugins = [
        json!({ "allow": ["staff", "stafff"] }),
        json!({ "allow": ["x-crew"] }),
        json!({ "deny": ["x-crew", "friend"] }),
    ];
    gateway.document.plugins =
        plugins.map(|config| entity(json!({ "id": id(1), "name": "acl", "config": config }))).into();
    let warnings = unknown_groups(&gateway.document).into_iter();
    let warnings: Vec<_> = warnings.map(|it| (it.entity.1, it.path, it.message)).collect();
    let expected = [
        (0, "config.allow[1]", "no consumer is in the group `stafff`; did you mean `staff`?"),
        (
            1,
            "config.allow[0]",
            "no consumer is in the group `x-crew`; write `acls: [{group: NAME}]` in consumers",
        ),
        (2, "config.deny[1]", "no consumer is in the group `friend`; did you mean `friends`?"),
    ];
    assert_eq!(warnings, expected.map(|(index, path, message)| (index, path.to_owned(), message.to_owned())));
}

#[derive(Clone, Copy)]
enum Caller {
    Unknown,
    Alice,
    Bob,
    Guest,
}

fn send(gateway: &Gateway, config: &Json, caller: Caller, groups: &[&str]) -> Outcome {
    let plugin = gateway.plugin("acl", config.clone()).unwrap();
    let mut exchange = gateway.exchange("GET /");
    let credential = Credential { id: id(9), identifier: None };
    match caller {
        Caller::Unknown => {}
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
        assert_eq!([Unknown, Alice, Bob, Guest].map(status), expected, "{config}");
    }
}

#[test]
fn an_anonymous_consumer_without_groups_is_unauthorized() {
    let mut gateway = gateway();
    gateway.document.custom.set([member(1, "staff"), member(1, "friends")]);
    for config in [json!({ "allow": ["staff"] }), json!({ "deny": ["staff"] })] {
        assert_eq!(send(&gateway, &config, Caller::Guest, &[]).status(), 401, "{config}");
    }
}

#[test]
fn the_upstream_gets_the_groups() {
    let gateway = gateway();
    let sent_groups = |config: Json, caller, groups: &[&str]| {
        let outcome = send(&gateway, &config, caller, groups);
        assert_eq!(outcome.status(), 200);
        ["X-Consumer-Groups", "X-Authenticated-Groups"]
            .map(|name| outcome.upstream_header(name).map(str::to_owned))
    };
    let value = |text: &str| Some(text.to_owned());
    assert_eq!(
        sent_groups(json!({ "allow": ["staff"] }), Caller::Alice, &[]),
        [value("staff, friends"), None]
    );
    assert_eq!(sent_groups(json!({ "deny": ["x"] }), Caller::Bob, &[]), [value(""), None]);
    assert_eq!(
        sent_groups(json!({ "allow": ["staff"], "hide_groups_header": true }), Caller::Alice, &[]),
        [None, None]
    );
    assert_eq!(sent_groups(json!({ "allow": ["b"] }), Caller::Unknown, &["a", "b"]), [None, value("a, b")]);
}

#[test]
fn groups_of_an_authentication_plugin_are_asked_about_where_it_knows_no_consumer() {
    use Caller::*;
    let gateway = gateway();
    let statuses = |config: Json, groups: &[&str]| {
        [Unknown, Alice, Bob, Guest].map(|caller| send(&gateway, &config, caller, groups).status())
    };
    assert_eq!(statuses(json!({ "allow": ["staff"] }), &["visitors"]), [403, 200, 403, 403]);
    assert_eq!(statuses(json!({ "allow": ["visitors"] }), &["staff"]), [403, 403, 403, 403]);
    assert_eq!(statuses(json!({ "deny": ["staff"] }), &["staff"]), [403, 403, 200, 403]);
    let always = json!({ "allow": ["staff"], "always_use_authenticated_groups": true });
    assert_eq!(statuses(always.clone(), &["staff"]), [200, 200, 200, 200]);
    assert_eq!(statuses(always.clone(), &["visitors"]), [403, 403, 403, 403]);
    assert_eq!(statuses(always, &[]), [401, 200, 403, 403]);
}
