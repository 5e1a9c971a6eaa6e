//! Runs the snippets of `cases/*.txt` and compares what they return, or how they fail.
//!
//! A case is a snippet of Lua, then a line `=> RESULT`. An expression needs no `return`. All values are written one
//! after the other, keys of tables in order; an error is `error: TEXT`.
#![allow(clippy::expect_used, clippy::panic)]

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::UNIX_EPOCH;

use mlua::{Function, Lua, Value};
use weir_guests::steps::OutOfSteps;
use weir_guests::{modules, patterns};

/// Runs a snippet and writes its results down.
const RUNNER: &str = include_str!("cases/run.lua");

/// Keys that the cases use, as globals.
fn keys() -> &'static [(&'static str, String)] {
    static KEYS: OnceLock<Vec<(&str, String)>> = OnceLock::new();
    KEYS.get_or_init(|| {
        let generate = |algorithm| rcgen::KeyPair::generate_for(algorithm).expect("a key");
        let pair = generate(&rcgen::PKCS_ECDSA_P256_SHA256);
        let mut parameters = rcgen::CertificateParams::new(["weir.test".to_owned()]).expect("parameters");
        parameters.serial_number = Some(0x1234_u64.into());
        let certificate = parameters.self_signed(&pair).expect("a certificate");
        vec![
            ("RSA_KEY", generate(&rcgen::PKCS_RSA_SHA256).serialize_pem()),
            ("ED_KEY", generate(&rcgen::PKCS_ED25519).serialize_pem()),
            ("CERTIFICATE", certificate.pem().replace("\r\n", "\n")),
            ("EC_KEY", pair.serialize_pem()),
        ]
    })
}

/// A VM as the host makes it, as far as modules see it.
fn vm() -> mlua::Result<Lua> {
    vm_over(None)
}

/// The same, whose modules come from files where that folder has them.
fn vm_over(libraries: Option<PathBuf>) -> mlua::Result<Lua> {
    let lua = Lua::new();
    patterns::install(&lua)?;
    let loaded = lua.create_table()?;
    let require = lua.create_function(move |lua, name: String| match loaded.get::<Value>(&*name)? {
        Value::Nil => {
            if let Ok(library @ Value::Table(_)) = lua.globals().get(&*name) {
                return Ok(library);
            }
            let of_file = libraries.as_ref().and_then(|folder| file(folder, &name));
            let module = match of_file {
                Some(path) => Some(lua.load(path).call(&*name)?),
                None => modules::load(lua, &name)?,
            };
            let module = module.ok_or_else(|| mlua::Error::runtime(format!("module '{name}' not found")))?;
            loaded.set(name, &module)?;
            Ok(module)
        }
        module => Ok(module),
    })?;
    lua.globals().set("require", require)?;
    // What Penlight needs of a library that the host has.
    lua.load("debug = { traceback = function(message) return message end, getinfo = function() return { what = 'Lua' } end, \
         gethook = function() return 'external hook' end, \
         getmetatable = getmetatable, setmetatable = function(value) return value end }")
        .exec()?;
    let ngx = modules::encodings(&lua)?;
    ngx.set("re", modules::regex(&lua)?)?;
    ngx.set("null", Value::NULL)?;
    let now = lua.create_function(|_, ()| {
        let since = UNIX_EPOCH.elapsed().map_err(mlua::Error::external)?;
        Ok(since.as_millis() as f64 / 1000.0)
    })?;
    ngx.set("now", now)?;
    let time = lua
        .load("local ngx = ... return function() return math.floor(ngx.now()) end")
        .call::<Function>(&ngx)?;
    ngx.set("time", time)?;
    lua.globals().set("ngx", ngx)?;
    for (name, key) in keys() {
        lua.globals().set(*name, &**key)?;
    }
    Ok(lua)
}

/// The file of a module in a folder.
fn file(folder: &Path, name: &str) -> Option<PathBuf> {
    let path = name.replace('.', "/");
    let places = [format!("{path}.lua"), format!("{path}/init.lua")];
    places.into_iter().map(|place| folder.join(place)).find(|path| path.is_file())
}

/// The folder with the libraries of Debian's packages.
fn libraries() -> PathBuf {
    let fetched = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/tools/lua");
    let folder = std::env::var_os("LUA_LIBRARIES").map_or(fetched, PathBuf::from).join("usr/share/lua/5.1");
    assert!(folder.is_dir(), "{} is missing: run `make test-tools`, or set LUA_LIBRARIES", folder.display());
    folder
}

/// The cases of a file: the line of the snippet, the snippet, the expected result.
fn cases(text: &str) -> Vec<(usize, String, &str)> {
    let (mut cases, mut snippet, mut start) = (Vec::new(), String::new(), 1);
    for (line, number) in text.lines().zip(1..) {
        if let Some(expected) = line.strip_prefix("=> ") {
            cases.push((start, std::mem::take(&mut snippet), expected));
        } else if !line.is_empty() && !line.starts_with("-- ") {
            if snippet.is_empty() {
                start = number;
            }
            snippet.push_str(line);
            snippet.push('\n');
        }
    }
    assert!(snippet.is_empty(), "line {start}: a snippet without a result");
    cases
}

/// What a snippet does in a VM of its own.
fn run(snippet: &str) -> String {
    run_in(&vm().expect("a VM"), snippet)
}

fn run_in(lua: &Lua, snippet: &str) -> String {
    let run: Function = lua.load(RUNNER).set_name("=run").eval().expect("the runner");
    run.call(snippet).unwrap_or_else(|error| format!("the runner fails: {error}"))
}

/// What differs in a file, one text each. With `WEIR_BLESS` the file gets the results that were found.
fn failures(file: &Path) -> Vec<String> {
    let text = fs::read_to_string(file).expect("a readable file");
    let (mut failures, mut blessed) = (Vec::new(), text.clone());
    let cases = cases(&text);
    assert!(!cases.is_empty(), "{} has no case", file.display());
    for (line, snippet, expected) in cases {
        let found = run(&snippet);
        if found != expected {
            blessed =
                blessed.replace(&format!("{snippet}=> {expected}\n"), &format!("{snippet}=> {found}\n"));
            failures.push(format!(
                "{}:{line}: {snippet}  expected {expected}\n  found    {found}",
                file.display()
            ));
        }
    }
    if std::env::var_os("WEIR_BLESS").is_some() {
        fs::write(file, blessed).expect("a file that can be written");
    }
    failures
}

#[test]
fn modules_do_what_the_cases_say() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases");
    let mut files: Vec<_> =
        fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("a file").path()).collect();
    files.retain(|file| file.extension().is_some_and(|end| end == "txt"));
    files.sort();
    assert!(!files.is_empty());
    let failures: Vec<_> = files.iter().flat_map(|file| failures(file)).collect();
    assert!(failures.is_empty(), "{} cases failed\n{}", failures.len(), failures.join("\n"));
}

/// Modules that we have of libraries which Debian packages: its own do what the same cases say.
#[test]
fn libraries_of_debian_do_the_same() {
    let (folder, mut failures) = (libraries(), Vec::new());
    for name in ["pl", "inspect", "ltn12"] {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/cases/{name}.txt"));
        let text = fs::read_to_string(&path).expect("a readable file");
        for (line, snippet, expected) in cases(&text) {
            let found = run_in(&vm_over(Some(folder.clone())).expect("a VM"), &snippet);
            if found != expected {
                failures
                    .push(format!("{name}.txt:{line}: {snippet}  expected {expected}\n  found    {found}"));
            }
        }
    }
    assert!(failures.is_empty(), "{} cases failed\n{}", failures.len(), failures.join("\n"));
}

#[test]
fn every_module_loads() {
    for name in modules::names() {
        let lua = vm().expect("a VM");
        let require: Function = lua.globals().get("require").expect("require");
        let module: Value = require.call(name).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert!(!module.is_nil(), "{name}");
    }
    assert!(modules::load(&vm().expect("a VM"), "no.such.module").expect("no error").is_none());
}

#[test]
fn a_call_of_much_work_ends_when_the_steps_are_used_up() {
    for script in [
        "local cjson, t = require('cjson'), {} for _ = 1, 40 do t = { t, t } end cjson.encode(t)",
        "local cjson, text = require('cjson'), '[' .. ('1,'):rep(2e5) .. '1]' cjson.decode(text)",
        "while true do ngx.re.find(('a'):rep(4000), [[(?=a*b)x]]) end",
        "for i = 1, 1e6 do ngx.re.match('', [[\\w{20}]] .. i, 'u') end",
        "for i = 1, 1e6 do ngx.re.match('', [[\\w{50}\\w{50}\\w{50}]] .. i, 'u') end",
        "local s = ('a'):rep(1e6) while true do ngx.encode_base64(s) end",
        "local s = ('a'):rep(1e6) while true do ngx.crc32_long(s) end",
        "local s = ('a'):rep(1e6) while true do ngx.hmac_sha1('', s) end",
        "local s = ('a'):rep(1e6) while true do ngx.escape_uri(s) end",
        "local s = ('a'):rep(1e6) while true do ngx.encode_args({ a = { s, s } }) end",
        "local s = ('a&'):rep(1e5) while true do ngx.decode_args(s, 0) end",
        "local s, cjson = ('a'):rep(1e6), require('cjson.safe') while true do cjson.decode(s) end",
        "local t, cjson = { [1e9] = 1 }, require('cjson.safe') for i = 1, 1e4 do t[i] = i end while true do cjson.encode(t) end",
        "local s, digest = ('a'):rep(1e6), require('resty.sha256') while true do local d = digest:new() d:update(s) d:final() end",
        "require('resty.openssl.bn').from_dec(('1'):rep(1e6))",
        "local random = require('resty.random') while true do random.bytes(1e6) end",
        "local zlib = require('zlib') while true do zlib.deflate() end",
        "local key = require('resty.openssl.pkey').new(RSA_KEY) for _ = 1, 100 do key:sign('x') end",
    ] {
        let lua = vm().expect("a VM");
        let error = lua.load(script).exec().expect_err(script);
        assert!(error.chain().any(|cause| cause.is::<OutOfSteps>()), "{script}: {error}");
    }
}
