//! Reads of `kong.db` take the time of the call that makes them.

use super::{gateway, settings};
use crate::steps::thread_time;
use crate::{LuaSettings, UntrustedLua};
use serde_json::json;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use weir_plugin::entity::EntityKind;
use weir_plugin::{
    EntityAccess, EntityDatabase, EntityKey, EntityOutcome, EntityPage, EntityWrite, Json, Uuid,
};

/// Entities among which every lookup takes long.
struct Many;

fn search() {
    let end = thread_time() + Duration::from_millis(50);
    while thread_time() < end {}
}

impl EntityAccess for Many {
    fn strategy(&self) -> &'static str {
        "off"
    }

    fn kinds(&self) -> Vec<EntityKind> {
        vec![EntityKind::Consumers]
    }

    fn find(&self, _: EntityKind, _: &EntityKey) -> Option<Json> {
        search();
        None
    }

    fn page(&self, _: EntityKind, _: &EntityPage) -> (Vec<Json>, Option<Uuid>) {
        search();
        (Vec::new(), None)
    }

    fn write(&self, _: EntityWrite) -> Pin<Box<dyn Future<Output = EntityOutcome> + Send>> {
        Box::pin(std::future::ready(Ok(None)))
    }
}

#[test]
fn reads_count() {
    for read in ["select_by_username('a')", "page()"] {
        let gateway =
            gateway(LuaSettings { timeout: Duration::from_millis(20), ..settings(UntrustedLua::On) });
        gateway.retained.get::<EntityDatabase>().provide(Arc::new(Many));
        let code = format!("kong.db.consumers:{read} ").repeat(4);
        let hooks = gateway.plugin("pre-function", json!({ "access": [code] })).unwrap();
        assert_eq!(gateway.send(&[&*hooks], "GET /").status(), 500, "{read}");
    }
}
