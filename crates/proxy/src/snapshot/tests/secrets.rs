//! Plugins and certificates whose references lead to secrets that they cannot use.

use super::compiler;
use crate::snapshot::Compiler;
use crate::testing::{Gateway, entity, id};
use serde_json::json;
use std::sync::Arc;
use weir_model::entity::Entity;
use weir_model::{Document, Entities};
use weir_plugin::schema::Record;
use weir_plugin::{BuildContext, Definition, Flow, Hooks, Phases, Plugin, Secret, define};

/// Builds with one secret alone.
struct Picky<const FAILS_OPEN: bool>;

#[derive(Debug, Clone, weir_plugin::Record)]
struct Config {
    #[field(secret)]
    pub key: Secret,
}

impl<const FAILS_OPEN: bool> Hooks for Picky<FAILS_OPEN> {
    fn phases(&self) -> Phases {
        Phases::LOG
    }
}

impl<const FAILS_OPEN: bool> Plugin for Picky<FAILS_OPEN> {
    const NAME: &'static str = if FAILS_OPEN { "open" } else { "closed" };
    const PRIORITY: i32 = 1;
    const FAILS_OPEN: bool = FAILS_OPEN;
    type Config = Config;

    fn new(config: Config, _: &BuildContext<'_>) -> Result<Self, String> {
        match config.key.expose() {
            "good" => Ok(Self),
            other => Err(format!("{other} is not good")),
        }
    }
}

const PLUGINS: &[Definition] = &[define::<Picky<true>>(), define::<Picky<false>>()];

fn document(name: &str, key: &str) -> Document {
    let plugin = json!({ "id": id(1), "name": name, "config": { "key": key } });
    Document { plugins: vec![entity(plugin)], ..Document::default() }
}

#[test]
fn a_plugin_with_a_secret_that_it_cannot_use_does_not_stop_the_others() {
    let compiler = Compiler { plugins: PLUGINS, ..compiler() };
    for (name, key, expected) in [
        ("closed", "good", Ok(vec![Phases::LOG])),
        ("closed", "{vault://env/path}", Ok(vec![Phases::ACCESS | Phases::PREREAD])),
        ("open", "{vault://env/path}", Ok(Vec::new())),
        ("open", "bad", Err("bad is not good".to_owned())),
    ] {
        let document = document(name, key);
        let compiled = compiler.compile(&document);
        let found =
            compiled.map(|snapshot| super::instances(&snapshot).iter().map(|it| it.phases()).collect());
        assert_eq!(found.map_err(|errors| errors[0].message.clone()), expected, "{name}: {key}");
        let plugin = Entity::Plugins(document.plugins[0].clone());
        assert_eq!(
            compiler.check(&plugin, &Entities::default()).is_err(),
            expected.is_err(),
            "{name}: {key}"
        );
    }
}

#[test]
fn requests_of_a_plugin_that_cannot_be_built_are_refused() {
    let compiler = Compiler { plugins: PLUGINS, ..compiler() };
    let snapshot = compiler.compile(&document("closed", "{vault://env/path}")).unwrap();
    let mut exchange = Gateway::new().exchange("GET /");
    match super::instances(&snapshot)[0].access(&mut exchange) {
        Flow::Respond(response) => assert_eq!(response.status, 500),
        _ => panic!("the request passes"),
    }
}

#[test]
fn a_certificate_without_its_secrets_is_left_out_with_its_names() {
    let issued = rcgen::generate_simple_self_signed(["a.test".to_owned()]).unwrap();
    let certificate = |number: u128, key: &str| {
        let written = json!({ "id": id(number), "cert": issued.cert.pem(), "key": key });
        Arc::new(weir_model::entity::Certificate::from_value(&written).unwrap())
    };
    let good = issued.signing_key.serialize_pem();
    let document = Document {
        certificates: vec![certificate(1, &good), certificate(2, "{vault://env/path}")],
        snis: vec![
            entity(json!({ "id": id(3), "name": "a.test", "certificate": id(1) })),
            entity(json!({ "id": id(4), "name": "b.test", "certificate": id(2) })),
        ],
        ..Document::default()
    };
    let compiler = compiler();
    let snapshot = compiler.compile(&document).unwrap();
    let of = |name: &str| snapshot.certificates.find(Some(name), &[]);
    assert!(!Arc::ptr_eq(&of("a.test"), &compiler.default_certificate));
    assert!(Arc::ptr_eq(&of("b.test"), &compiler.default_certificate));
}
