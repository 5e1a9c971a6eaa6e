//! The matrix of versions and plugins in `matrix.json`, and that every rule can be read.
use super::*;
use crate::wire::sample::cases;
use serde::Deserialize;

#[derive(Deserialize)]
struct Case {
    name: String,
    #[serde(default = "current")]
    control_plane: KongVersion,
    #[serde(default = "current_text")]
    data_plane: String,
    #[serde(default)]
    configured: Vec<String>,
    #[serde(default)]
    loaded: Vec<LoadedPlugin>,
    status: SyncStatus,
}

fn current() -> KongVersion {
    KongVersion::CURRENT
}

fn current_text() -> String {
    KongVersion::CURRENT.to_string()
}

#[test]
fn data_planes_are_accepted_and_refused_as_by_kong() {
    for case in cases::<Case>(include_str!("matrix.json")) {
        let configured = case.configured.iter().map(String::as_str);
        let checked = check_version(case.control_plane, &case.data_plane)
            .and_then(|_| check_plugins(configured, case.control_plane, &case.loaded));
        let status = checked.as_ref().err().map_or(SyncStatus::Normal, |incompatible| incompatible.status);
        assert_eq!(status, case.status, "{}: {checked:?}", case.name);
    }
}

#[test]
fn every_rule_can_be_read() {
    assert!(rules::parsed().unwrap() > 50);
    assert!(Rules::of(KongVersion::parse("3.10.0").unwrap()).is_empty());
    assert!(!Rules::of(KongVersion::parse("3.9.3").unwrap()).is_empty());
}

#[test]
fn versions_are_compared_by_their_numbers() {
    let parse = |text| KongVersion::parse(text).unwrap();
    assert!(
        parse("3.9.0") < parse("3.9.1")
            && parse("3.9.1") < parse("3.10.0")
            && parse("3.4.0.0") < parse("3.4.0.1")
    );
    assert_eq!(parse("3.9.3-enterprise-edition"), parse("3.9.3"));
    for text in ["", "3", "3.9", "v3.9.1", "3.x.1", "3.9.", "99999999999.1.1"] {
        assert_eq!(KongVersion::parse(text), None, "{text}");
    }
}
