//! The tests of lua-cjson, over the module `cjson` of the host.

use super::debian::{folder, with_modules};
use super::gateway;
use crate::host::Origin;
use crate::node::Node;
use crate::phase::Phase;
use crate::vm::Vm;
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::path::Path;
use std::rc::Rc;

/// Tests that fail, and why.
const DIFFERENT: [(&str, &[&str]); 4] = [
    (
        "Kong's cjson is OpenResty's, whose version, texts and limits are others",
        &[
            "Check module name, version",
            "Encode NaN [throw error]",
            "Encode Infinity [throw error]",
            "Encode NaN",
            "Encode Infinity",
            "Set encode_number_precision(0) [throw error]",
        ],
    ),
    ("the order of members is that of LuaJIT's tables", &["Encode sparse array as object"]),
    (
        "errors name the function",
        &[
            "Set encode_number_precision(\"five\") [throw error]",
            "Set encode_keep_buffer(nil, true) [throw error]",
            "Set encode_max_depth(\"wrong\") [throw error]",
            "Set decode_max_depth(0) [throw error]",
            "Set encode_invalid_numbers(-2) [throw error]",
            "Set decode_invalid_numbers(true, false) [throw error]",
            "Set encode_sparse_array(\"not quite on\") [throw error]",
            "Encode (safe) argument validation [throw error]",
        ],
    ),
    (
        "the tests take the length of a table with a hole, which in LuaJIT is another",
        &["Decode (safe) error generation", "Decode (safe) error generation after new()"],
    ),
];

/// A file that the tests read. Perl would make the one with all characters.
fn contents(folder: &Path, name: &str) -> Vec<u8> {
    match name {
        "utf8.dat" => (0..=u32::from(char::MAX)).filter_map(char::from_u32).collect::<String>().into_bytes(),
        name => std::fs::read(folder.join(name)).unwrap(),
    }
}

/// What the tests print.
fn printed(folder: &Path) -> Vec<String> {
    let gateway = gateway(with_modules(&folder.join("lua")));
    let vm = Vm::of_thread(&gateway.retained.get(), &Node::of(&gateway.retained)).unwrap();
    let (lua, lines) = (&vm.lua, Rc::<RefCell<Vec<String>>>::default());
    let of_print = lines.clone();
    let print = move |_: &mlua::Lua, line: Option<mlua::LuaString>| {
        // Some print megabytes.
        let line = line.map(|line| line.to_string_lossy()).unwrap_or_default();
        of_print.borrow_mut().push(line.chars().take(200).collect::<String>());
        Ok(())
    };
    let tests = folder.join("tests");
    let of_files = tests.clone();
    let load = move |lua: &mlua::Lua, name: String| lua.create_string(contents(&of_files, &name));
    let prepare = "local print, file_load = ... _G.print, _G.arg, os.exit = print, { 'example1.json', 'numbers.json' }, type \
                   os.setlocale = os.setlocale or type require('cjson.util').file_load = file_load";
    let functions = (lua.create_function(print).unwrap(), lua.create_function(load).unwrap());
    let text = String::from_utf8(contents(&tests, "test.lua")).unwrap().replacen("#!", "--", 1);
    let run = || {
        lua.load(prepare).call::<()>(functions)?;
        lua.load(text).set_name("=test.lua").exec()
    };
    let origin = Rc::new(Origin { plugin: "probe".into(), id: "".into() });
    vm.host.lend(&mut gateway.exchange("GET /"), (Phase::Access, &origin), run).unwrap();
    lines.take()
}

#[test]
fn they_pass() {
    let lines = printed(&folder().join("lua-cjson"));
    let tests: Vec<_> = lines.iter().filter(|line| line.starts_with("==> Test [")).collect();
    assert!(tests.len() > 100, "{lines:#?}");
    let failed = |line: &String| Some(line.strip_suffix(": FAIL")?.split_once("] ")?.1.to_owned());
    let failed: BTreeSet<String> = tests.into_iter().filter_map(failed).collect();
    let different = DIFFERENT.iter().flat_map(|(_, names)| names.iter().map(|&name| name.to_owned()));
    assert_eq!(failed, different.collect(), "{lines:#?}");
}
