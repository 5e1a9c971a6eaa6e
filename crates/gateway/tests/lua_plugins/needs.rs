//! `weir check --plugins`: what plugins need that is not here.
use super::{Plugins, SCHEMA};
use crate::harness::weir;
use std::path::Path;

fn check(folder: &Path) -> (bool, String) {
    let output = weir().arg("check").arg("--plugins").arg(folder).output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8(said).unwrap())
}

#[test]
fn a_plugin_that_has_all_is_good() {
    let plugins = Plugins::mine(
        "local http, mine = require 'resty.sha256', require('kong.plugins.mine.more')\n\
         local kong, ngx_log = kong, ngx.log\n\
         return { PRIORITY = 1, VERSION = '1.0', access = function() -- kong.nothing\n\
           ngx_log(ngx.ERR, kong.request.get_header('x'), ngx.ctx.x, ngx.var.uri, kong.ctx.shared.y) end }",
    );
    plugins.write("mine/more.lua", "return require 'beside'");
    std::fs::write(plugins.folder().join("beside.lua"), "return {}").unwrap();
    let (good, said) = check(plugins.folder());
    assert!(good && said.contains("mine: has all that it needs"), "{said}");
}

#[test]
fn what_is_missing_is_named_with_its_line() {
    let plugins = Plugins::new(&[
        ("one/schema.lua", SCHEMA),
        (
            "one/handler.lua",
            "local ffi = require 'ffi'\nlocal ok = pcall(require, \"resty.nothing\")\n\
             local request = kong.request\nrequest.get_header('x')\nrequest.get_nothing()\n\
             ngx.location.nothing('/x')\nlocal rand = require('kong.tools.rand')\nrand.nothing()",
        ),
        ("three/handler.lua", "return {}"),
        ("two/handler.lua", "return {\n  PRIORITY = = 1\n}"),
        ("two/schema.lua", SCHEMA),
    ]);
    let (good, said) = check(plugins.folder());
    let plugin = |name: &str| plugins.folder().join(format!("kong/plugins/{name}/handler.lua"));
    let file = plugin("one");
    let expected = [
        "one: 5 problems".to_owned(),
        format!("{}:1: there is no module 'ffi' here", file.display()),
        format!("{}:2: there is no module 'resty.nothing' here", file.display()),
        format!("{}:5: there is no kong.request.get_nothing here", file.display()),
        format!("{}:6: there is no ngx.location.nothing here", file.display()),
        format!("{}:8: there is no kong.tools.rand.nothing here", file.display()),
        "three: 1 problem".to_owned(),
        format!("{}:1: there is no schema.lua beside it", plugin("three").display()),
        "two: 1 problem".to_owned(),
        format!("{}:2: unexpected symbol near '='", plugin("two").display()),
    ];
    assert!(!good);
    assert_eq!(said.lines().collect::<Vec<_>>(), expected);
    let (good, said) = check(&plugins.folder().join("kong"));
    assert!(!good && said.contains("no plugin here"), "{said}");
}

#[test]
fn a_handler_with_a_response_and_a_filter_is_refused() {
    let check_handler = |text: &str| {
        let plugins = Plugins::new(&[("one/schema.lua", SCHEMA), ("one/handler.lua", text)]);
        let (good, said) = check(plugins.folder());
        assert_eq!(good, said.contains("has all that it needs"), "{said}");
        let file = plugins.folder().join("kong/plugins/one/handler.lua");
        said.replace(&file.display().to_string(), "handler.lua")
    };
    let refused = |line: u32, filter: &str| {
        format!(
            "handler.lua:{line}: a handler with `response` cannot have `{filter}`: do its work in `response`"
        )
    };
    let start = "local H = { PRIORITY = 1, VERSION = '1.0' }\n";
    let said =
        check_handler(&format!("{start}function H:header_filter() end\nfunction H.response() end\nreturn H"));
    assert!(said.contains(&refused(3, "header_filter")), "{said}");
    let said =
        check_handler(&format!("{start}H.response = require('x')\nfunction H:body_filter() end\nreturn H"));
    assert!(said.contains(&refused(2, "body_filter")), "{said}");
    let said = check_handler(
        "return { PRIORITY = 1, VERSION = '1.0',\nresponse = function() end,\nbody_filter = function() end }",
    );
    assert!(said.contains(&refused(2, "body_filter")), "{said}");
    for good in
        ["function H:response() end", "local o = {} function o:response() end function H:body_filter() end"]
    {
        let said = check_handler(&format!("{start}{good}\nreturn H"));
        assert!(said.contains("one: has all that it needs"), "{said}");
    }
}

#[test]
fn a_file_is_checked_with_the_plugins_beside_it() {
    let plugins = Plugins::mine("return { PRIORITY = 1, VERSION = '1.0' }");
    let daos = "return { { name = 'marks', primary_key = { 'id' }, fields = {
      { id = require('kong.db.schema.typedefs').uuid }, { text = { type = 'string', required = true } } } } }";
    plugins.write("mine/daos.lua", daos);
    let file = plugins.folder().join("kong.yml");
    let check = |text: &str, folder: &Path| {
        std::fs::write(&file, text).unwrap();
        let output = weir().arg("check").arg(&file).arg("--plugins").arg(folder).output().unwrap();
        String::from_utf8([output.stdout, output.stderr].concat()).unwrap()
    };
    let good = "_format_version: '3.0'\nplugins:\n- name: mine\nmarks:\n- text: a\n";
    for folder in [plugins.folder().to_owned(), plugins.folder().join("kong/plugins")] {
        let said = check(good, &folder);
        assert!(said.contains("mine: has all that it needs") && said.contains("kong.yml: good"), "{said}");
    }
    let said = check(&good.replace("text: a", "text: 1"), plugins.folder());
    assert!(said.contains("kong.yml:5:9: marks[0].text: expected a string"), "{said}");
    let said = check(&good.replace("name: mine", "name: other"), plugins.folder());
    let hint = "one of your own in Lua has to be named in the setting `plugins`";
    assert!(
        said.contains("no such plugin `other`; `weir plugins` lists those that are available; ")
            && said.contains(hint),
        "{said}"
    );
}
