//! No code makes the VM panic or run for long, opens the FFI, or changes what code of others sees.
//!
//! The input chooses among productions of a grammar, so that most of the code parses.
#![no_main]

#[path = "vm/code.rs"]
mod code;

use code::{Code, names};
use libfuzzer_sys::fuzz_target;
use serde_json::json;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;
use tokio::runtime::LocalRuntime;
use weir_guests::{LuaSettings, PLUGINS, UntrustedLua};
use weir_plugin::testing::Gateway;
use weir_plugin::{ErrorTemplates, Flow, Hooks};

const TIMEOUT: Duration = Duration::from_millis(5);
/// How long a request may wait, in all.
const PATIENCE: Duration = Duration::from_millis(50);
/// What takes longer is a hang, also on a busy machine.
const HANG: Duration = Duration::from_secs(120);
/// How many inputs a VM of trusted code gets.
const INPUTS: u32 = 50;

/// What sandboxed code sees: its own functions, and those of all.
const SEEN: &str = r#"
local seen = {}
for name in ([[NAMES]]):gmatch("[^\n]+") do
  local at = _G
  for part in name:gmatch("[^.]+") do
    local ok, member = pcall(function() return at[part] end)
    at = ok and member or nil
  end
  -- What depends on the request is no function.
  seen[#seen + 1] = type(at) == "function" and tostring(at) or ""
end
kong.response.exit(200, tostring(kong.ctx.shared.left) .. table.concat(seen, "\n"))
"#;

/// What code of the operator does not reach either.
const CLOSED: &str = r#"
local ok, ffi = pcall(require, "ffi")
if ok and type(ffi) == "table" and ffi.cdef then kong.response.exit(200, "open") end
kong.response.exit(200, "closed")
"#;

const REQUEST: &str = "POST /a%20b/c?x=1&y&z=%202\nUser-Agent: fuzz\nX-One: 1\nX-Two: a\nX-Two: b\nContent-Type: application/json\n\n{\"a\":[1,2,{\"b\":null}]}";

struct Vm {
    gateway: Gateway,
}

impl Vm {
    fn new(untrusted: UntrustedLua) -> Self {
        let gateway = Gateway::new(PLUGINS);
        let (timeout, memory) = (TIMEOUT, 8 << 20);
        let environment = || vec!["bit".to_owned(), "table".to_owned(), "ngx.socket.tcp".to_owned()];
        gateway.retained.provide(LuaSettings {
            untrusted,
            timeout,
            memory,
            sandbox_environment: environment(),
            sandbox_requires: ["cjson", "cjson.safe", "table.new", "ngx.re"].map(str::to_owned).into(),
            ..LuaSettings::default()
        });
        Self { gateway }
    }

    /// Runs code in phases of a request. Returns what it answers.
    fn run(&self, worker: &LocalRuntime, code: &str) -> Option<String> {
        let config = json!({ "access": [code], "header_filter": [code], "body_filter": [code], "log": [code] });
        let hooks = self.gateway.plugin("pre-function", config).ok()?;
        worker.block_on(self.request(&*hooks))
    }

    async fn request(&self, hooks: &dyn Hooks) -> Option<String> {
        let mut exchange = self.gateway.exchange(REQUEST);
        let deadline = tokio::time::Instant::now() + PATIENCE;
        let mut flow = hooks.access(&mut exchange);
        let answer = loop {
            flow = match flow {
                Flow::Continue => break None,
                Flow::Respond(answer) => break Some(answer),
                Flow::Wait(operation) => match tokio::time::timeout_at(deadline, operation).await {
                    Ok(resume) => resume(&mut exchange),
                    // The client has left.
                    Err(_) => break None,
                },
            };
        };
        let answer = answer.map(|answer| {
            String::from_utf8_lossy(&Vec::from(answer.write(&mut exchange, &ErrorTemplates::default()))).into_owned()
        });
        exchange.response.status = 200;
        hooks.response(&mut exchange);
        hooks.log(&mut exchange);
        answer
    }

    /// What other code sees.
    fn seen(&self, worker: &LocalRuntime) -> String {
        let code = SEEN.replace("NAMES", &names().join("\n"));
        self.run(worker, &code).expect("other code runs")
    }
}

/// Code that is not trusted does not change what other code sees.
fn sandboxed() -> impl FnMut(&str) {
    let (vm, worker) = (Vm::new(UntrustedLua::Sandbox), LocalRuntime::new().expect("a runtime"));
    let before = vm.seen(&worker);
    move |code| {
        vm.run(&worker, code);
        assert_eq!(vm.seen(&worker), before, "code changed what other code sees");
    }
}

/// Code of the operator may change what other code sees, so that a VM does not last.
fn open() -> impl FnMut(&str) {
    let (mut vm, worker) = (Vm::new(UntrustedLua::On), LocalRuntime::new().expect("a runtime"));
    let mut inputs = 0;
    move |code| {
        inputs += 1;
        if inputs % INPUTS == 0 {
            vm = Vm::new(UntrustedLua::On);
        }
        vm.run(&worker, code);
        let answer = vm.run(&worker, CLOSED);
        assert!(!answer.is_some_and(|answer| answer.ends_with("open")), "the FFI is open");
    }
}

/// A thread that runs code: a thread has one VM at a time.
struct Runner(Sender<String>, Receiver<()>);

impl Runner {
    fn new<R: FnMut(&str)>(make: impl FnOnce() -> R + Send + 'static) -> Self {
        let (code, codes) = channel::<String>();
        let (done, dones) = channel();
        std::thread::spawn(move || {
            let mut run = make();
            while let Ok(code) = codes.recv() {
                run(&code);
                let _ = done.send(());
            }
        });
        Self(code, dones)
    }

    fn run(&self, code: &str) {
        self.0.send(code.to_owned()).expect("the thread runs");
        let done = self.1.recv_timeout(HANG);
        assert!(done.is_ok(), "the code does not end, or the thread has panicked: {done:?}");
    }
}

thread_local! {
    static RUNNERS: [Runner; 2] = [Runner::new(sandboxed), Runner::new(open)];
}

fuzz_target!(|input: &[u8]| {
    let code = Code::of(input);
    if std::env::var_os("SHOW").is_some() {
        println!("{code}");
    }
    RUNNERS.with(|runners| runners.iter().for_each(|runner| runner.run(&code)));
});
