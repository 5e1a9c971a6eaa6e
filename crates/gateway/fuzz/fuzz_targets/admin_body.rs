//! No body of a request to the Admin API, be it JSON or a form, makes its reading panic: it is an entity, or it is said
//! what is wrong.
//!
//! The first line of the input is the body's type.
#![no_main]

// The modules stand alone, because the crate shows none of the Admin API.
#[allow(dead_code)]
#[path = "../../src/admin/form.rs"]
mod form;
#[path = "../../src/json_body.rs"]
mod json_body;
#[allow(dead_code)]
#[path = "../../src/admin/request_body.rs"]
mod request_body;
#[path = "../../src/admin/tree.rs"]
mod tree;

/// What the modules need of the rest.
mod response {
    /// Why a body cannot be read.
    pub(super) enum ApiError {
        MediaType,
        Malformed(String),
    }
}

use libfuzzer_sys::fuzz_target;
use response::ApiError;
use std::sync::LazyLock;
use tokio::runtime::LocalRuntime;
use weir_model::entity::{Entity, EntityKind};
use weir_model::schema::{JsonMap, RecordSchema};
use weir_model::{PluginSchema, ReadOptions};

static SCHEMAS: LazyLock<Vec<PluginSchema>> = LazyLock::new(|| {
    weir_plugins::PLUGINS.iter().chain(weir_guests::PLUGINS).map(|plugin| plugin.schema).collect()
});

fn config_schema(members: &JsonMap) -> Option<&'static RecordSchema> {
    let name = members.get("name")?.as_str()?;
    SCHEMAS.iter().find(|schema| schema.name == name).map(|schema| schema.config)
}

fn read(kind: EntityKind, mut members: JsonMap, untyped: bool) {
    if untyped {
        let schema = config_schema(&members);
        form::typed(kind, &mut members, schema);
    }
    let reading = ReadOptions { plugins: &SCHEMAS, references: &(), hash_passwords: true };
    match Entity::read(kind, &members.into(), &[], reading) {
        Ok(entity) => assert_eq!(entity.kind(), kind),
        Err(errors) => assert!(!errors.is_empty() && errors.iter().all(|error| !error.message.is_empty())),
    }
}

thread_local! {
    static RUNTIME: LocalRuntime = LocalRuntime::new().expect("a runtime");
}

fuzz_target!(|input: &[u8]| {
    let at = input.iter().position(|byte| *byte == b'\n').unwrap_or(input.len());
    let content_type = str::from_utf8(&input[..at]).ok();
    let bytes = axum::body::Bytes::copy_from_slice(input.get(at + 1..).unwrap_or_default());
    match RUNTIME.with(|runtime| runtime.block_on(request_body::Body::read(content_type, bytes))) {
        Ok(body) => {
            for kind in EntityKind::BUILT_IN {
                read(*kind, body.members.clone(), body.untyped);
            }
        }
        Err(ApiError::Malformed(message)) => assert!(!message.is_empty()),
        Err(ApiError::MediaType) => {}
    }
});
