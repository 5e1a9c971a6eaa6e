//! `docs/entities.md`, written from the declarations of the entities.
//!
//! `WEIR_BLESS=1 cargo test -p weir-model --test main entities_page::` writes it anew.
#![allow(clippy::unwrap_used, missing_docs)]
use std::path::Path;
use weir_model::entity::EntityKind;
use weir_model::schema::{Choice, markdown};

const OPENING: &str = "\
# Entities

What can be configured: Kong's entities, with Kong's names, defaults and rules. In a declarative file they stand in
lists of these names, nested in each other or side by side; over the [Admin API](admin-api.md) each is a resource of its
own, and `GET /schemas/NAME` answers with what this page says. References to other entities are written as their name or
id in files and as `{\"id\": …}` over the Admin API. `filled in` fields need not be given.

This page is written from the declarations in `crates/model/src/entity`.
";

#[test]
fn the_page_in_docs_is_current() {
    let mut page = OPENING.to_owned();
    for kind in EntityKind::ALL {
        let (name, schema) = (kind.as_str(), kind.schema());
        page.push_str(&format!("\n## {name}\n\n{}\n\n{}", schema.doc, markdown::table(schema)));
    }
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/entities.md");
    if std::env::var_os("WEIR_BLESS").is_some() {
        std::fs::write(&file, &page).unwrap();
    }
    let found = std::fs::read_to_string(&file).unwrap_or_default();
    assert!(found == page, "docs/entities.md is out of date; run this test with WEIR_BLESS=1");
}
