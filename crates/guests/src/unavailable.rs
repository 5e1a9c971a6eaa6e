//! What plugins of Kong know and the host does not have, with what to use instead.

/// Functions that are there and always fail. Their errors say why, and so does `weir check --plugins`.
const REFUSED: &[(&str, &str)] = &[
    (
        "kong.service.set_target_retry_callback",
        "use an Upstream with several targets, and kong.service.set_upstream",
    ),
    ("ngx.exec", "there are no locations"),
    ("ngx.location.capture", "use resty.http"),
    ("ngx.location.capture_multi", "use resty.http"),
    ("ngx.req.set_body_file", "use set_body_data"),
    ("ngx.run_worker_thread", "work that takes long belongs into a service of its own"),
    ("socket.bind", BLOCKS),
    ("socket.connect", BLOCKS),
    ("socket.select", BLOCKS),
    ("socket.sleep", BLOCKS),
    ("socket.tcp", BLOCKS),
    ("socket.udp", BLOCKS),
];

const BLOCKS: &str = "use resty.http, ngx.socket.tcp or ngx.sleep";

/// What is not there at all: modules, globals and their members.
const INSTEAD: &[(&str, &str)] = &[
    ("debug", "traceback and getinfo are all there is of it"),
    ("dofile", "use require"),
    ("ffi", "code does not reach memory or C: use the modules that docs/lua.md lists"),
    ("io.popen", PROCESSES),
    ("kong.core_cache", "use kong.cache"),
    ("kong.dao", "use kong.db"),
    ("kong.db.connector", "no SQL runs here: use the collections of kong.db"),
    ("kong.db.daos", "use kong.db and the name of the collection"),
    ("kong.plugins.base_plugin", "Kong 3 does not have it either: return a table with methods"),
    ("kong.singletons", "Kong 3 does not have it either: use kong.db, kong.cache and the others"),
    ("kong.tools.responses", "Kong 3 does not have it either: use kong.response.exit"),
    ("loadfile", "use require"),
    ("module", "return a table"),
    ("os.execute", PROCESSES),
    ("os.exit", "it would end the node: use kong.response.exit"),
    ("os.remove", FILES),
    ("os.rename", FILES),
    ("os.tmpname", FILES),
    ("package.loadlib", "C modules are not loaded: use the modules that docs/lua.md lists"),
    ("resty.openidc", "use the plugin openid-connect"),
    ("string.dump", "bytecode is neither made nor loaded"),
];

const PROCESSES: &str = "no other processes run here: ask a service, with resty.http";
const FILES: &str = "files are read and written alone, by io.open";

fn find(list: &[(&'static str, &'static str)], name: &str) -> Option<&'static str> {
    list.iter().find(|(known, _)| *known == name).map(|(_, why)| *why)
}

/// Why a function that is there always fails.
pub(crate) fn refused(name: &str) -> Option<&'static str> {
    find(REFUSED, name)
}

/// What to use instead of a name that is missing, or of a table that has it.
pub(crate) fn instead(name: &str) -> Option<&'static str> {
    let root = || name.split_once('.').and_then(|(root, _)| find(INSTEAD, root));
    find(INSTEAD, name).or_else(root)
}

#[cfg(test)]
mod tests {
    use super::{INSTEAD, REFUSED, instead, refused};
    use crate::LuaSettings;
    use crate::vm::Vm;
    use mlua::{Function, Value};
    use std::sync::Arc;

    #[test]
    fn what_is_refused_is_there_and_says_why() {
        let vm = Vm::reading(&Arc::new(LuaSettings::default())).unwrap();
        for (name, why) in REFUSED {
            let code = match name.strip_prefix("socket.") {
                Some(member) => format!("return require('socket').{member}"),
                None => format!("return {name}"),
            };
            let function: Function = vm.lua.load(code).eval().unwrap();
            let error = function.call::<()>(()).unwrap_err().to_string();
            let is_of_a_phase = error.contains("cannot be called in");
            assert!(is_of_a_phase || error.contains(why), "{name}: {error}");
            assert_eq!(refused(name), Some(*why));
        }
    }

    #[test]
    fn what_is_replaced_is_not_there() {
        let vm = Vm::reading(&Arc::new(LuaSettings::default())).unwrap();
        // Before the node serves, `kong.db` has an object for each name.
        let is_seen = |name: &str| name != "debug" && !name.starts_with("kong.db.");
        for (name, _) in INSTEAD.iter().filter(|(name, _)| is_seen(name)) {
            let code = format!("return {name} or select(2, pcall(require, '{name}'))");
            let found = vm.lua.load(code).eval::<Value>();
            let is_missing = found.as_ref().map_or(true, |value| !value.is_function() && !value.is_table());
            assert!(is_missing, "{name}: {found:?}");
        }
        assert_eq!(instead("debug.sethook"), instead("debug"));
        assert_eq!(instead("kong.nothing"), None);
    }
}
