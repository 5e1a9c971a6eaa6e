//! A VM has a bounded number of handles, by which the host holds values of Lua.

use super::{gateway, settings, value};
use crate::node::Node;
use crate::vm::Vm;
use crate::{LuaSettings, UntrustedLua};
use mlua::Table;
use serde_json::json;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

#[test]
fn a_vm_whose_handles_are_used_up_is_replaced() {
    let gateway = gateway(settings(UntrustedLua::On));
    let vm = Vm::of_thread(&gateway.retained.get(), &Node::of(&gateway.retained)).unwrap();
    let mut kept: Vec<Table> = Vec::new();
    // The last one is refused, or panics.
    let _ = catch_unwind(AssertUnwindSafe(|| {
        while let Ok(table) = vm.lua.create_table() {
            kept.push(table);
        }
    }));
    let hooks = gateway.plugin("pre-function", json!({ "access": ["kong.response.exit(204)"] })).unwrap();
    let send = || catch_unwind(AssertUnwindSafe(|| gateway.send(&[&*hooks], "GET /").status()));
    assert!(!send().is_ok_and(|status| status == 204), "{} handles were left", kept.len());
    assert_eq!(send().unwrap(), 204);
    drop(vm);
    assert_eq!(send().unwrap(), 204);
}

#[test]
fn what_code_keeps_has_no_handles() {
    let keepers = [
        ("require('cjson').new()", 10_000),
        ("('x'):gmatch('x')", 70_000),
        ("ngx.re.gmatch('x', 'x')", 70_000),
        ("coroutine.wrap(print)", 70_000),
    ];
    for (keeper, count) in keepers {
        let settings =
            LuaSettings { timeout: Duration::from_secs(60), memory: 2 << 30, ..settings(UntrustedLua::On) };
        let code = format!("local all = {{}} for i = 1, {count} do all[i] = {keeper} end return #all");
        assert_eq!(value(settings, &code), count.to_string(), "{keeper}");
    }
}
