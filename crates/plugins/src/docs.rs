//! The plugins' pages under `docs/plugins`: each consists of the documentation of its file, where the plugin differs on purpose,
//! and the table of its fields. `README.md` there lists all of them.
//!
//! `docs/entities.md` has the fields of all entities, those of plugins among them.
//!
//! `WEIR_BLESS=1 cargo test -p weir-plugins docs::` writes them again.

mod differences;
mod index;

use super::PLUGINS;
use differences::Documents;
use index::{index, row};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use weir_plugin::entity::{EntityKind, VAULTS, VaultSchema};
use weir_plugin::schema::{Kind, RecordSchema, markdown};
use weir_plugin::{Definition, EntityKinds};

/// Every plugin, those that run Lua too, in the order in which they run.
fn plugins() -> Vec<Definition> {
    let mut plugins = [PLUGINS, weir_guests::PLUGINS].concat();
    plugins.sort_by_key(|definition| Reverse(definition.priority));
    plugins
}

#[test]
fn plugins_docs() {
    let crate_root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let (documents, folder) = (Documents::read(), crate_root.join("../../docs/plugins"));
    let mut rows = BTreeMap::new();
    for definition in &plugins() {
        let name = definition.schema.name;
        let text = documentation(crate_root, name);
        let differences = documents.differences(name, !definition.schema.extension, &text);
        check(&folder.join(format!("{name}.md")), &page(definition, &text, &differences.section));
        rows.insert(name, row(definition, &text, &differences));
    }
    check(&folder.join("README.md"), &index(rows));
}

const ENTITIES: &str = "\
# Entities

The entities of a configuration: Kong's entities, with Kong's names, defaults and rules. A declarative file contains them
in lists of these names, nested or side by side; in the [Admin API](admin-api.md) each is a resource, and
`GET /schemas/NAME` returns its schema. A reference to another entity is its name or id in files, and `{\"id\": …}` in the
Admin API. Fields marked `filled in` are generated if you leave them out.

This page is generated from the declarations in `crates/model/src/entity`, and from those of the plugins.
";

#[test]
fn entities_page() {
    let schemas: Vec<_> = plugins().iter().map(|definition| definition.schema).collect();
    let mut page = ENTITIES.to_owned();
    for kind in EntityKinds::of(&schemas).iter() {
        let schema = kind.schema();
        write!(page, "\n## {}\n\n{}\n\n{}", kind.as_str(), schema.doc, markdown::table(schema)).unwrap();
        let vaults = VAULTS.iter().filter(|_| kind == EntityKind::Vaults);
        for VaultSchema { name, config, .. } in vaults {
            let table = markdown::table(config);
            write!(page, "\n### `config` of the vault {name}\n\n{}\n\n{table}", config.doc).unwrap();
        }
    }
    check(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/entities.md"), &page);
}

/// The plugins here that Kong 3.9 has too.
const OF_KONG: [&str; 45] = [
    "acl",
    "acme",
    "ai-prompt-decorator",
    "ai-prompt-guard",
    "ai-prompt-template",
    "ai-proxy",
    "ai-request-transformer",
    "ai-response-transformer",
    "aws-lambda",
    "azure-functions",
    "basic-auth",
    "bot-detection",
    "correlation-id",
    "cors",
    "datadog",
    "file-log",
    "grpc-gateway",
    "grpc-web",
    "hmac-auth",
    "http-log",
    "ip-restriction",
    "jwt",
    "key-auth",
    "ldap-auth",
    "loggly",
    "oauth2",
    "opentelemetry",
    "post-function",
    "pre-function",
    "prometheus",
    "proxy-cache",
    "rate-limiting",
    "redirect",
    "request-size-limiting",
    "request-termination",
    "request-transformer",
    "response-ratelimiting",
    "response-transformer",
    "session",
    "standard-webhooks",
    "statsd",
    "syslog",
    "tcp-log",
    "udp-log",
    "zipkin",
];

#[test]
fn plugins_that_kong_lacks_are_extensions() {
    for schema in plugins().iter().map(|definition| definition.schema) {
        assert_eq!(schema.extension, !OF_KONG.contains(&schema.name), "{}", schema.name);
    }
}

#[test]
fn plugins_are_listed_from_the_first_to_run_to_the_last() {
    assert!(PLUGINS.is_sorted_by_key(|definition| -definition.priority));
}

/// Compares a file with the expected text, or writes it if `WEIR_BLESS` is set.
fn check(file: &PathBuf, expected: &str) {
    if std::env::var_os("WEIR_BLESS").is_some() {
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(file, expected).unwrap();
    }
    let found = std::fs::read_to_string(file).unwrap_or_default();
    assert!(found == expected, "{} is out of date; run this test with WEIR_BLESS=1", file.display());
}

/// The `//!` lines of a plugin's file.
fn documentation(crate_root: &Path, name: &str) -> String {
    let stems = ["src", "../guests/src"].map(|folder| crate_root.join(folder).join(name.replace('-', "_")));
    let mut files = stems.iter().flat_map(|stem| [stem.with_extension("rs"), stem.join("mod.rs")]);
    let source = files.find_map(|file| std::fs::read_to_string(file).ok()).unwrap();
    let lines = source.lines().map_while(|line| line.strip_prefix("//!"));
    let text = lines.map(|line| line.strip_prefix(' ').unwrap_or(line)).collect::<Vec<_>>().join("\n");
    assert!(text.contains("```yaml"), "{name}: an example is missing");
    text
}

fn page(definition: &Definition, text: &str, differences: &str) -> String {
    let schema = &definition.schema;
    assert_documented(schema.config, "");
    let fields = markdown::table(schema.config);
    format!("# {}\n\n{text}\n\n{differences}## Configuration\n\n{fields}", schema.name)
}

fn assert_documented(record: &RecordSchema, prefix: &str) {
    for field in record.fields {
        let name = format!("{prefix}{}", field.name);
        match field.kind {
            Kind::Record(inner) => assert_documented(inner, &format!("{name}.")),
            _ => assert!(!field.doc.is_empty(), "{name}: documentation is missing"),
        }
    }
}
