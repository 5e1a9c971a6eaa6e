//! `weir check --plugins`: what plugins need that is not here.
use super::{Plugins, SCHEMA};
use crate::harness::weir;
use std::path::Path;

/// A schema without rules, of this plugin.
fn schema_of(plugin: &str) -> String {
    SCHEMA.replace("mine", plugin)
}

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
        ("one/schema.lua", &schema_of("one")),
        (
            "one/handler.lua",
            "local ffi = require 'ffi'\nlocal ok = pcall(require, \"resty.nothing\")\n\
             local request = kong.request\nrequest.get_header('x')\nrequest.get_nothing()\n\
             ngx.location.nothing('/x')\nlocal rand = require('kong.tools.rand')\nrand.nothing()\n\
             return { PRIORITY = 1, VERSION = '1.0' }",
        ),
        ("three/handler.lua", "return { PRIORITY = 1, VERSION = '1.0' }"),
        ("two/handler.lua", "return {\n  PRIORITY = = 1\n}"),
        ("two/schema.lua", &schema_of("two")),
    ]);
    let (good, said) = check(plugins.folder());
    let plugin = |name: &str| plugins.folder().join(format!("kong/plugins/{name}/handler.lua"));
    let file = plugin("one");
    let expected = [
        "one: 5 problems".to_owned(),
        format!(
            "{}:1: there is no module 'ffi' here: code does not reach memory or C: use the modules that docs/lua.md lists",
            file.display()
        ),
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
        let plugins = Plugins::new(&[("one/schema.lua", &schema_of("one")), ("one/handler.lua", text)]);
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

/// What is said of one file of a plugin, without the name of the file; nothing if all is there.
fn said_of(name: &str, text: &str) -> Vec<String> {
    let handler = "return { PRIORITY = 1, VERSION = '1.0' }";
    let plugins = Plugins::new(&[("one/handler.lua", handler), ("one/schema.lua", &schema_of("one"))]);
    plugins.write(&format!("one/{name}"), text);
    let (good, said) = check(plugins.folder());
    let (first, rest) = said.split_once('\n').unwrap();
    let (problems, warnings) = (first.contains("problem"), first.contains("warning"));
    assert_eq!((good, warnings), (!problems, said.contains(": warning: ")), "{said}");
    assert_eq!(first == "one: has all that it needs", rest.is_empty(), "{said}");
    let file = plugins.folder().join(format!("kong/plugins/one/{name}:")).display().to_string();
    rest.lines().map(|line| line.replace(&file, "")).collect()
}

/// What is said of a handler with this before its methods.
fn said_of_code(code: &str) -> Vec<String> {
    said_of("handler.lua", &format!("{code} return {{ PRIORITY = 1, VERSION = '1.0' }}"))
}

#[test]
fn what_is_there_and_of_no_use_is_named_with_what_to_use_instead() {
    for (code, expected) in [
        ("ngx.location.capture('/x')", "1: ngx.location.capture always fails here: use resty.http"),
        ("local run = ngx.run_worker_thread", "1: ngx.run_worker_thread always fails here: work that takes"),
        (
            "local socket = require 'socket'\nsocket.sleep(1)",
            "2: socket.sleep always fails here: use resty.http",
        ),
        ("os.execute('ls')", "1: there is no os.execute here: no other processes run here"),
        ("local os = os\nos.execute('ls')", "2: there is no os.execute here"),
        ("local os, io = os, io\nio.popen('ls')", "2: there is no io.popen here: no other processes"),
        ("os.remove('x')", "1: there is no os.remove here: files are read and written alone"),
        ("dofile('x')", "1: there is no dofile here: use require"),
        ("local x = string.dump(f)", "1: there is no string.dump here: bytecode"),
        ("debug.sethook()", "1: there is no debug.sethook here: traceback and getinfo are all"),
        ("local x = 'a' .. os.tmpname()", "1: there is no os.tmpname here"),
        ("package.loadlib('x')", "1: there is no package.loadlib here: C modules"),
        ("kong.db.connector:query('SELECT 1')", "1: there is no kong.db.connector here: no SQL runs here"),
        (
            "local db = kong.db\ndb.consumrs:select({})",
            "2: warning: there is no kong.db.consumrs here; did you mean `consumers`?",
        ),
        (
            "kong.request.get_headr('x')",
            "1: there is no kong.request.get_headr here; did you mean `get_header`?",
        ),
        (
            "local cjson = require 'cjson.safe'\ncjson.decod('1')",
            "2: there is no cjson.safe.decod here; did you mean `decode`?",
        ),
        (
            "kong.service.request.set_headr('x', 'y')",
            "1: there is no kong.service.request.set_headr here; did you mean `set_header`?",
        ),
        (
            "require 'kong.plugins.base_plugin'",
            "1: there is no module 'kong.plugins.base_plugin' here: Kong 3",
        ),
        (
            "require('resty.openidc')",
            "1: there is no module 'resty.openidc' here: use the plugin openid-connect",
        ),
        (
            "kong.service.set_target_retry_callback(f)",
            "1: kong.service.set_target_retry_callback always fails",
        ),
    ] {
        let said = said_of_code(code);
        assert!(said.len() == 1 && said[0].starts_with(expected), "{code}: {said:?}");
    }
    for good in [
        "local os = { execute = print } os.execute()",
        "local function f(io, dofile) io.popen() dofile() end",
        "for _, debug in ipairs({}) do debug.sethook() end",
        "local t = { dofile = 1, os = { execute = 2 } } t.os.execute() t.dofile()",
        "function string.split(s) end string.split('x') table.contains = 1 print(table.contains)",
        "string.format('x') os.time() io.open('x') debug.traceback() coroutine.wrap(f) math.max(1)",
        "local name = 'x' require('kong.plugins.' .. name)",
        "kong.db.consumers:select({}) kong.db.keyauth_credentials:page() kong.db.tags:page() kong.db.workspaces:each()",
        "print(kong.db.strategy, kong.db[name])",
    ] {
        assert!(said_of_code(good).is_empty(), "{good}: {:?}", said_of_code(good));
    }
}

#[test]
fn what_code_looks_for_before_it_uses_it_is_a_warning_at_most() {
    for (code, expected) in [
        ("if kong.newthing then kong.newthing.x() end", "1: warning: there is no kong.newthing here"),
        ("if not (ngx.exec) then f() end", "1: warning: ngx.exec always fails here"),
        ("local x = kong.newthing or kong.cache", "1: warning: there is no kong.newthing here"),
        ("local x = kong.newthing and kong.newthing.y", "1: warning: there is no kong.newthing here"),
        ("if type(kong.newthing) == 'table' then f() end", "1: warning: there is no kong.newthing here"),
        ("if kong.newthing ~= nil then f() end", "1: warning: there is no kong.newthing here"),
        ("if loadfile then loadfile('x') end", "1: warning: there is no loadfile here"),
        ("kong.newthing.x()\nif kong.newthing then f() end", "1: there is no kong.newthing.x here"),
        ("if kong.newthing() then f() end", "1: there is no kong.newthing here"),
        ("if kong.newthing then kong.newthings.x() end", "1: there is no kong.newthings.x here"),
    ] {
        let said = said_of_code(code);
        assert!(said.iter().any(|line| line.starts_with(expected)), "{code}: {said:?}");
    }
}

#[test]
fn warnings_are_counted_beside_problems() {
    let plugin = "return { PRIORITY = 1, VERSION = '1.0', acess = function() kong.db.consumer:each() end }";
    for (code, expected) in [
        (plugin.to_owned(), "mine: 2 warnings\n"),
        (plugin.replace("acess", "access"), "mine: 1 warning\n"),
        (format!("kong.nothing() {plugin}"), "mine: 1 problem, 2 warnings\n"),
        (
            plugin.replace("acess", "access").replace("consumer:", "consumers:"),
            "mine: has all that it needs\n",
        ),
    ] {
        let (good, said) = check(Plugins::mine(&code).folder());
        assert!(said.starts_with(expected), "{code}: {said}");
        assert_eq!(good, !expected.contains("problem"), "{said}");
    }
}

#[test]
fn shared_dictionaries_that_no_setting_names_are_warned_of() {
    let code = "local counters = ngx.shared.my_counter counters:incr('a', 1, 0)
      ngx.shared['other']:get('a') ngx.shared.kong:get('a') ngx.shared.kong_lock:get('a') ngx.shared[name]:get('a')
      return { PRIORITY = 1, VERSION = '1.0' }";
    let plugins = Plugins::mine(code);
    let check = |dicts: &str| {
        let mut command = weir();
        command.arg("check").arg("--plugins").arg(plugins.folder()).env("WEIR_LUA_SHARED_DICT", dicts);
        let output = command.output().unwrap();
        let said = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
        assert!(output.status.success(), "{said}");
        said.replace(
            &plugins.folder().join("kong/plugins/mine/handler.lua").display().to_string(),
            "handler.lua",
        )
    };
    let named = |dict: &str| format!("name it in the setting lua_shared_dict, as `{dict} 1m`");
    let expected = format!(
        "mine: 3 warnings\n\
         handler.lua:1: warning: there is no ngx.shared.my_counter here: {}\n\
         handler.lua:2: warning: there is no ngx.shared.kong_lock here; did you mean `kong_locks`?\n\
         handler.lua:2: warning: there is no ngx.shared.other here: {}\n",
        named("my_counter"),
        named("other")
    );
    assert_eq!(check("unrelated 1m"), expected);
    let said = check("my_counters 1m, other 1m");
    assert!(said.contains("there is no ngx.shared.my_counter here; did you mean `my_counters`?"), "{said}");
    assert!(!said.contains("ngx.shared.other"), "{said}");
}

#[test]
fn handlers_that_kong_refuses_are_named() {
    for (text, expected) in [
        ("local H = {}", "1: the file returns nothing: let it return the table of the handler"),
        ("local H = {}\nreturn", "2: the file returns nothing"),
        ("return 5", "1: the file returns a number"),
        ("return 'x'", "1: the file returns a text"),
        ("return true", "1: the file returns a boolean"),
        ("return function() return {} end", "1: the file returns a function"),
        ("local f = function()\n return {}\nend", "3: the file returns nothing"),
        (
            "\nreturn { VERSION = '1.0' }",
            "2: the handler has no PRIORITY: give it a whole number, such as 1000",
        ),
        (
            "local H = { PRIORITY = 1 }\nreturn H",
            "1: the handler has no VERSION: give it a text of the form x.y.z",
        ),
        ("local H = {}\nH.PRIORITY = '1'\nH.VERSION = '1.0'\nreturn H", "2: PRIORITY must be a whole number"),
        ("return { PRIORITY = 1.5, VERSION = '1.0' }", "1: PRIORITY must be a whole number"),
        ("return { PRIORITY = nil, VERSION = '1.0' }", "1: PRIORITY must be a whole number"),
        ("return { PRIORITY = 1, VERSION = 'new' }", "1: VERSION must be a text of the form x.y.z"),
        ("return { PRIORITY = 1, VERSION = 1.0 }", "1: VERSION must be a text of the form x.y.z"),
        (
            "return { PRIORITY = 1, VERSION = '1.0',\nacess = function() end }",
            "2: warning: no phase calls the method `acess`; did you mean `access`?",
        ),
        (
            "local H = { PRIORITY = 1, VERSION = '1.0' }\nfunction H:header_fitler() end\nreturn H",
            "2: warning: no phase calls the method `header_fitler`; did you mean `header_filter`?",
        ),
        (
            "return { PRIORITY = 1, VERSION = '1.0', preread = function() end }",
            "1: warning: the method `preread` is not called here",
        ),
    ] {
        let (name, folder) = ("handler.lua", Plugins::mine(text));
        let (good, said) = check(folder.folder());
        let line = said.lines().nth(1).unwrap_or_default();
        let line = line.split_once(&format!("{name}:")).unwrap_or_default().1;
        assert!(line.starts_with(expected), "{text}\nexpected {expected}\nfound {said}");
        assert_eq!((good, said.lines().count()), (expected.contains("warning"), 2), "{said}");
    }
    for good in [
        "local H = {}\nH.PRIORITY = 10 - 2\nH.VERSION = '1.0.0-rc'\nfunction H:access() self:acess() end\n\
         function H:acess() end\nreturn H",
        "local meta = require 'kong.meta' return { PRIORITY = -5, VERSION = meta.version }",
        "local H = {}\nH.PRIORITY, H.VERSION = 10, '1.0.0'\nreturn H",
        "local H, M = {}, {}\nH.VERSION, M.x, H.PRIORITY = '1.0.0', 5, 10\nreturn H",
        "local H = { PRIORITY = 1, VERSION = '1.0' }\nfunction H:response() end\nfunction H:header_filter() end\n\
         H.response = nil\nreturn H",
        "local H = { PRIORITY = 'x' }\nH.PRIORITY = 5\nH.VERSION = '1.0'\nreturn H",
        "local Base = setmetatable({}, {}) local H = Base:extend() return H",
        "local H = {} local function fill(t) t.PRIORITY = 1 end fill(H) return H",
        "return setmetatable({}, { __index = {} })",
        "local H = { PRIORITY = 1e3, VERSION = '1.0', helper = function() end, accesses = 5 }\nreturn H;",
    ] {
        assert!(said_of("handler.lua", good).is_empty(), "{good}: {:?}", said_of("handler.lua", good));
    }
}

#[test]
fn schemas_that_kong_refuses_are_named_with_their_lines() {
    let of_fields = |fields: &str| {
        format!(
            "return {{ name = 'one', fields = {{ {{ config = {{ type = 'record', fields = {{\n{fields} }} }} }} }} }}"
        )
    };
    let of_entity = |name: &str, fields: &str| {
        format!(
            "return {{ {{ name = {name}, primary_key = {{ 'id' }}, fields = {{ \
             {{ id = require('kong.db.schema.typedefs').uuid }}, {fields} }} }} }}"
        )
    };
    for (name, text, expected) in [
        (
            "schema.lua",
            of_fields("{ a = { type = 'string',\n requried = true } }"),
            "3: config.a: there is no attribute `requried`; did you mean `required`?",
        ),
        (
            "schema.lua",
            of_fields("{ a = { type = 'number', len_min = 1 } }"),
            "2: warning: config.a: attribute 'len_min' does not work with type 'number'",
        ),
        (
            "schema.lua",
            of_fields("{ a =\n{ type = 'array' } }"),
            "2: config.a: field of type 'array' must declare 'elements'",
        ),
        ("schema.lua", "return 5".to_owned(), "1: the file returns no table"),
        (
            "schema.lua",
            "\nlocal x = nil\nreturn x.y".to_owned(),
            "3: attempt to index local 'x' (a nil value)",
        ),
        (
            "daos.lua",
            "return { { name = 'marks', primary_key = { 'id' }, fields = {\n\
          { id = { type = 'string', uuid = true, auto = true, uniqe = true } } } } }"
                .to_owned(),
            "2: marks: id: there is no attribute `uniqe`; did you mean `unique`?",
        ),
        (
            "schema.lua",
            "\nlocal x = require('kong.plugins.dyn.' .. 'missing') return x".to_owned(),
            "2: there is no module 'kong.plugins.dyn.missing' here",
        ),
        (
            "schema.lua",
            "\nreturn require('resty.nothing')".to_owned(),
            "2: there is no module 'resty.nothing' here",
        ),
        (
            "schema.lua",
            "return { name = 'other', fields = { { config = { type = 'record', fields = {} } } } }"
                .to_owned(),
            "1: warning: name: `other` has no effect, because the plugin is `one`, after its folder",
        ),
        (
            "schema.lua",
            of_fields("{ ['\\255\\27[2J'] = { type = 'strin' } }"),
            "2: config.\u{fffd}\\u{1b}[2J: there is no type `strin`; did you mean `string`?",
        ),
        (
            "daos.lua",
            of_entity("'marks'", "{ c = { type = 'foreign', reference = 'consumer' } }"),
            "1: marks: `c` refers to consumer: declare these before it in the same file, or refer to entities of the \
             gateway itself",
        ),
        (
            "daos.lua",
            of_entity("'services'", ""),
            "1: services: the gateway has entities of this name: choose another",
        ),
        (
            "daos.lua",
            of_entity("'marks', endpoint_key = 'nope'", ""),
            "1: marks: its endpoint_key `nope` must be one of its fields, a string",
        ),
        (
            "daos.lua",
            of_entity("'marks', cache_key = { 'nope', 'id' }", ""),
            "1: marks: its cache_key names `nope`, which it has no field of",
        ),
    ] {
        assert_eq!(said_of(name, &text), [expected], "{text}");
    }
    assert!(said_of("schema.lua", &of_fields("{ a = require('kong.db.schema.typedefs').port }")).is_empty());
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
    for folder in ["", "kong/plugins", "kong/plugins/mine/"].map(|folder| plugins.folder().join(folder)) {
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

#[test]
fn plugins_that_are_checked_open_no_files_and_change_nothing_of_others() {
    let evil = |code: &str| {
        format!(
            "{code} return {{ name = 'a', fields = {{ {{ config = {{ type = 'record', fields = {{}} }} }} }} }}"
        )
    };
    let handler = "return { PRIORITY = 1, VERSION = '1.0' }";
    let uses = "kong.bogus() return { PRIORITY = 1, VERSION = '1.0' }";
    for (code, expected) in [
        ("io.open(FILE, 'w'):write('x')", "1: warning: files cannot be opened while a plugin is checked"),
        ("for line in io.lines(FILE) do end", "1: warning: files cannot be opened while a plugin is checked"),
        ("require('io').open(FILE, 'w')", "1: warning: files cannot be opened while a plugin is checked"),
        ("io.stdout:write('forged') io.stderr:write('forged') io.write('forged')", ""),
        ("pcall(io.open, FILE, 'w')", ""),
        ("require('kong.db.schema').check_field = function() end kong.bogus = function() end", ""),
    ] {
        let plugins = Plugins::new(&[
            ("a/handler.lua", handler),
            ("b/handler.lua", uses),
            ("b/schema.lua", &schema_of("b").replace("type = 'record'", "type = 'rcord'")),
        ]);
        let file = plugins.folder().join("written");
        plugins.write("a/schema.lua", &evil(&code.replace("FILE", &format!("'{}'", file.display()))));
        for named in [false, true] {
            let configuration = plugins.folder().join("kong.yml");
            std::fs::write(&configuration, "_format_version: '3.0'\n").unwrap();
            let mut command = weir();
            command.arg("check");
            if named {
                command.arg(&configuration);
            }
            let output = command.arg("--plugins").arg(plugins.folder()).output().unwrap();
            let said = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
            assert!(said.contains(expected) && !said.contains("forged"), "{code}: {said}");
            let of_a = if expected.is_empty() { "a: has all that it needs\n" } else { "a: 1 warning\n" };
            assert!(!file.exists() && said.contains(of_a), "{code}: {said}");
            let of_b = ["b: 2 problems\n", "there is no kong.bogus here", "there is no type `rcord`"];
            assert!(of_b.iter().all(|line| said.matches(line).count() == 1), "{code}: {said}");
        }
    }
}

#[test]
fn a_broken_plugin_leaves_the_others_in_a_file_usable() {
    let handler = "return { PRIORITY = 1, VERSION = '1.0' }";
    let plugins = Plugins::new(&[
        ("good/handler.lua", handler),
        ("good/schema.lua", &schema_of("good")),
        ("broken/handler.lua", "return 5"),
        ("broken/schema.lua", &schema_of("broken")),
        ("late/handler.lua", "error('\\27[2J not today') return { PRIORITY = 1, VERSION = '1.0' }"),
        ("late/schema.lua", &schema_of("late")),
    ]);
    let file = plugins.folder().join("kong.yml");
    let names = ["good", "broken", "late"].map(|name| format!("- name: {name}\n")).concat();
    std::fs::write(&file, format!("_format_version: '3.0'\nplugins:\n{names}")).unwrap();
    let output = weir().arg("check").arg(&file).arg("--plugins").arg(plugins.folder()).output().unwrap();
    let said = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
    for expected in [
        "plugin `broken` cannot be used, because of what is wrong with its files\n",
        "plugin `late` cannot be used, because of what is wrong with its files\n",
        "1: the file returns a number: let it return the table of the handler\n",
        "\\u{1b}[2J not today",
    ] {
        assert_eq!(said.matches(expected).count(), 1, "{expected}: {said}");
    }
    assert!(!said.contains("no such plugin") && !said.contains("`good`"), "{said}");
    assert!(!said.contains('\u{1b}') && !output.status.success(), "{said}");
}

#[test]
fn a_misspelt_phase_is_named_by_the_check_the_start_and_the_reload() {
    let handler = |method: &str| {
        format!("local H = {{ PRIORITY = 1, VERSION = '1.0' }} function H:{method}() end return H")
    };
    let plugins = Plugins::mine(&handler("acess"));
    let warning = |method: &str, meant: &str| {
        format!("mine/handler.lua: no phase calls the method `{method}`; did you mean `{meant}`?")
    };
    let file = "_format_version: '3.0'\nplugins:\n- name: mine\n";
    let path = plugins.folder().join("kong.yml");
    std::fs::write(&path, file).unwrap();
    let place = format!("{}/?.lua;;", plugins.folder().display());
    let mut check = weir();
    check.arg("check").arg(&path).env("KONG_PLUGINS", "bundled,mine").env("KONG_LUA_PACKAGE_PATH", place);
    let output = check.output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success() && said.contains(&warning("acess", "access")), "{said}");
    let gateway = plugins.builder("mine", file).start();
    assert!(gateway.log().contains(&warning("acess", "access")), "{}", gateway.log());
    plugins.write("mine/handler.lua", &handler("header_fitler"));
    assert!(gateway.reload(file).status.success());
    assert!(gateway.log().contains(&warning("header_fitler", "header_filter")), "{}", gateway.log());
}
