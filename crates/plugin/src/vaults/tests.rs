use super::env::variable;
use super::*;
use crate::{BuildContext, Definition, Hooks, Phases, Plugin, define};
use serde_json::json;
use std::sync::atomic::{AtomicBool, Ordering};
use weir_model::schema::{Record, Secret};
use weir_model::{Document, Uuid};

/// Has the name of what it is asked for, in a JSON object. It has `none` only while `has_none` is set.
#[derive(Default)]
struct Fixed {
    has_none: AtomicBool,
}

impl Vault for Fixed {
    fn get(&self, reference: &SecretReference) -> Result<String, Cow<'static, str>> {
        let prefix = reference.option("prefix").unwrap_or_default();
        match reference.resource.as_str() {
            "none" if !self.has_none.load(Ordering::Relaxed) => Err("there is none".into()),
            resource => Ok(json!({ "name": format!("{prefix}{resource}"), "number": 1 }).to_string()),
        }
    }
}

#[derive(Debug, Clone, Record)]
struct Inner {
    #[field(secret)]
    pub password: Option<Secret>,
}

#[derive(Debug, Clone, Record)]
struct Config {
    pub redis: Inner,
    #[field(secret)]
    pub keys: Vec<String>,
    pub path: String,
}

struct Sample;

impl Hooks for Sample {
    fn phases(&self) -> Phases {
        Phases::NONE
    }
}

impl Plugin for Sample {
    const NAME: &'static str = "sample";
    const PRIORITY: i32 = 1;
    type Config = Config;
    fn new(_: Config, _: &BuildContext<'_>) -> Result<Self, String> {
        Ok(Sample)
    }
}

/// Takes its time, and says when it was asked.
struct Slow(Arc<Mutex<Vec<String>>>, bool);

impl Vault for Slow {
    fn get(&self, reference: &SecretReference) -> Result<String, Cow<'static, str>> {
        self.0.lock().unwrap().push(reference.vault.clone());
        Ok(String::new())
    }

    fn is_remote(&self) -> bool {
        self.1
    }
}

#[test]
fn vaults_of_this_machine_are_asked_before_servers() {
    let (vaults, asked) = (Vaults::default(), Arc::new(Mutex::new(Vec::new())));
    vaults.add("remote", Arc::new(Slow(asked.clone(), true)));
    vaults.add("local", Arc::new(Slow(asked.clone(), false)));
    let text = |vault: &str, number: usize| format!("{{vault://{vault}/{number}}}");
    let references = (0..50).map(|number| text("remote", number)).chain((0..50).map(|n| text("local", n)));
    let requests: Vec<_> = references.map(|text| vaults.request(&text, &[]).unwrap()).collect();
    vaults.cache.fetch(&requests);
    let asked = asked.lock().unwrap();
    let early = asked[..40].iter().filter(|vault| *vault == "remote").count();
    assert_eq!((asked.len(), early), (100, 0));
}

const PLUGINS: &[Definition] = &[define::<Sample>()];

fn vaults() -> (Vaults, Arc<Fixed>) {
    let (vaults, fixed) = (Vaults::default(), Arc::new(Fixed::default()));
    vaults.add("fixed", fixed.clone());
    (vaults, fixed)
}

fn document(config: Json) -> Document {
    let plugin = json!({ "name": "sample", "config": config });
    let plugin = entity::Plugin::from_value(&plugin).unwrap();
    let mut document = Document::default();
    document.plugins.push(Arc::new(entity::Plugin { id: Uuid::nil(), ..plugin }));
    document
}

fn reason(vaults: &Vaults, reference: &str) -> String {
    vaults.get(reference, &[]).unwrap_err().reason().to_owned()
}

#[test]
fn names_in_the_environment_are_in_capitals() {
    let name = |text| variable(&SecretReference::parse(text).unwrap());
    assert_eq!(name("{vault://env/redis-password}"), "REDIS_PASSWORD");
    assert_eq!(name("{vault://env/password?prefix=my-app_#2}"), "MY_APP_PASSWORD_PREVIOUS");
    let vaults = Vaults::default();
    assert!(vaults.get("{vault://env/path}", &[]).is_ok_and(|path| !path.is_empty()));
    assert_eq!(
        reason(&vaults, "{vault://env/weir-has-none}"),
        "could not get value from external vault (no value found (the environment has no WEIR_HAS_NONE))"
    );
    vaults.configure("env", vec![("prefix".to_owned(), "weir_has_".to_owned())]);
    assert!(reason(&vaults, "{vault://env/none}").contains("the environment has no WEIR_HAS_NONE"));
}

#[test]
fn what_leads_to_no_secret_is_said_in_kongs_words() {
    let (vaults, _) = vaults();
    let json = "could not get value from external vault (could not get subfield value: ";
    for (reference, expected) in [
        ("fixed", "not a reference [fixed]".to_owned()),
        ("{vault://other/x}", "could not find vault (other)".to_owned()),
        (
            "{vault://fixed/none}",
            "could not get value from external vault (no value found (there is none))".to_owned(),
        ),
        ("{vault://fixed/a/b}", format!("{json}subfield b not found in JSON secret)")),
        (
            "{vault://fixed/a/number}",
            format!("{json}unexpected value in JSON secret for subfield number; write a string)"),
        ),
        ("{vault://env/path/x}", format!("{json}unable to json decode value)")),
    ] {
        assert_eq!(reason(&vaults, reference), expected, "{reference}");
    }
}

#[test]
fn secrets_of_a_configuration_are_resolved_and_nothing_else() {
    let (vaults, _) = vaults();
    let document = document(json!({
        "redis": { "password": "{vault://fixed/redis/name}" },
        "keys": ["plain", "{vault://fixed/key/name?prefix=my-}", "{vault://fixed/none}", "{vault://other/x}"],
        "path": "{vault://fixed/path/name}",
    }));
    let resolved = vaults.resolve(&document, PLUGINS);
    let plugin = resolved.document.plugins[0].clone();
    assert_eq!(plugin.config["redis"]["password"], "redis");
    assert_eq!(plugin.config["keys"], json!(["plain", "my-key", "", ""]));
    assert_eq!(plugin.config["path"], "{vault://fixed/path/name}");
    assert!(resolved.secretive.contains(&(entity::EntityKind::Plugins, Uuid::nil())));
    let again = vaults.resolve(&document, PLUGINS);
    assert!(Arc::ptr_eq(&plugin, &again.document.plugins[0]), "what has not changed is the same");
}

#[test]
fn documents_without_references_are_not_copied() {
    let (vaults, _) = vaults();
    let document = document(json!({ "redis": {}, "keys": [], "path": "/" }));
    assert!(matches!(vaults.resolve(&document, PLUGINS).document, Cow::Borrowed(_)));
}

#[test]
fn a_rotation_finds_what_has_changed() {
    let (vaults, fixed) = vaults();
    let document = document(json!({ "redis": {}, "keys": ["{vault://fixed/none/name}"], "path": "/" }));
    let keys = || vaults.resolve(&document, PLUGINS).document.plugins[0].config["keys"].clone();
    assert_eq!(keys(), json!([""]));
    assert!(!vaults.rotate(), "there is still none");
    fixed.has_none.store(true, Ordering::Relaxed);
    assert_eq!(keys(), json!([""]), "before the rotation");
    assert!(vaults.rotate());
    assert_eq!(keys(), json!(["none"]));
    fixed.has_none.store(false, Ordering::Relaxed);
    assert!(!vaults.rotate(), "what cannot be read again is kept");
    assert_eq!(keys(), json!(["none"]));
}

#[test]
fn a_secret_ends_where_it_may_not_outlast_its_vault() {
    let (vaults, fixed) = vaults();
    fixed.has_none.store(true, Ordering::Relaxed);
    let reference = "{vault://fixed/none/name?ttl=0&resurrect_ttl=0}";
    assert_eq!(vaults.get(reference, &[]).as_deref(), Ok("none"));
    fixed.has_none.store(false, Ordering::Relaxed);
    assert!(vaults.rotate());
    assert!(reason(&vaults, reference).contains("there is none"));
}

#[test]
fn a_secret_is_not_read_again_before_its_time() {
    let (vaults, fixed) = vaults();
    let reference = "{vault://fixed/none/name?neg_ttl=100000}";
    assert!(vaults.get(reference, &[]).is_err());
    fixed.has_none.store(true, Ordering::Relaxed);
    assert!(!vaults.rotate());
}

fn vault(config: Json) -> Arc<entity::Vault> {
    let written = json!({ "prefix": "mine", "name": "fixed", "config": config });
    Arc::new(entity::Vault::from_value(&written).unwrap())
}

#[test]
fn vault_entities_have_configurations_of_their_own() {
    let (vaults, _) = vaults();
    let get =
        |reference: &str, config| vaults.get(reference, &[vault(config)]).map_err(|e| e.reason().to_owned());
    let name = "{vault://mine/a/name}";
    assert_eq!(get(name, json!({ "prefix": "his-" })).as_deref(), Ok("his-a"));
    assert_eq!(get("{vault://mine/a/name?prefix=my-}", json!({ "prefix": "his-" })).as_deref(), Ok("my-a"));
    assert_eq!(get(name, json!({ "prefix": "{vault://fixed/x/name}" })).as_deref(), Ok("xa"));
    let circle = get(name, json!({ "prefix": "{vault://mine/x/name}" })).unwrap_err();
    assert_eq!(circle, "unable to resolve reference {vault://mine/x/name} (could not find vault (mine))");
}

#[test]
fn files_are_read_below_their_folder_alone() {
    let folder = std::env::temp_dir().join(format!("weir-vaults-{}", std::process::id()));
    std::fs::create_dir_all(folder.join("secrets/..data")).unwrap();
    std::fs::write(folder.join("outside"), "outside").unwrap();
    std::fs::write(folder.join("secrets/..data/password"), "secret\r\n").unwrap();
    std::fs::write(folder.join("secrets/large"), vec![b'a'; 1024 * 1024 + 1]).unwrap();
    std::os::unix::fs::symlink("..data/password", folder.join("secrets/password")).ok();
    std::os::unix::fs::symlink("../outside", folder.join("secrets/away")).ok();
    let vaults = Vaults::default();
    vaults.add("file", Arc::new(FileVault::new(folder.join("secrets"))));
    assert_eq!(vaults.get("{vault://file/password}", &[]).as_deref(), Ok("secret"));
    assert_eq!(vaults.get("{vault://file/data/password/?prefix=..}", &[]).as_deref(), Ok("secret"));
    for (path, expected) in [
        ("../outside/", "write a path below"),
        ("%2e%2e%2foutside", "write a path below"),
        ("/outside/", "write a path below"),
        ("away", "is outside of"),
        ("large", "is no file of at most"),
        ("..data/", "is no file of at most"),
        ("none", "no such file"),
    ] {
        let reason = reason(&vaults, &format!("{{vault://file/{path}}}"));
        assert!(reason.contains(expected), "{path}: {reason}");
    }
    std::fs::remove_dir_all(folder).unwrap();
}
