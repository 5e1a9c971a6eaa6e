//! Files of plugins that change while a node runs.
use super::{Plugins, SCHEMA};
use crate::harness::{Gateway, Upstream, eventually, one_route};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

fn handler(version: &str) -> String {
    format!(
        "local text = 'none' \
         return {{ PRIORITY = 10, VERSION = '1.0.0', \
           init_worker = function() text = '{version}' end, \
           access = function() kong.response.exit(200, text) end }}"
    )
}

#[test]
fn a_reload_runs_the_files_as_they_are_now() {
    let plugins = Plugins::mine(&handler("one"));
    let configuration = format!(
        "{}plugins:\n- name: mine\n",
        one_route(Upstream::answering("HTTP/1.1 200 OK\r\n\r\n").address)
    );
    let gateway = plugins.builder("mine", &configuration).start();
    assert_eq!(gateway.get("/").text(), "one");
    plugins.write("mine/handler.lua", &handler("two"));
    assert_eq!(gateway.get("/").text(), "one", "files are read when the node is told to");
    assert!(gateway.reload(&configuration).status.success());
    assert_eq!(gateway.get("/").text(), "two");
    plugins.write("mine/handler.lua", "return {");
    let refused = gateway.reload(&configuration);
    let said = String::from_utf8_lossy(&refused.stderr).into_owned() + &gateway.log();
    assert!(!refused.status.success() && said.contains("mine/handler.lua:1: unexpected symbol"), "{said}");
    assert_eq!(gateway.get("/").text(), "two");
    plugins.write("mine/handler.lua", &handler("three"));
    assert!(!gateway.reload("_format_version: 5").status.success());
    assert_eq!(gateway.get("/").text(), "two", "code and configuration go together");
    plugins.write(
        "mine/schema.lua",
        &SCHEMA.replace("fields = {} }", "fields = { { a = { type = 'string' } } } }"),
    );
    let configured = configuration.replace("name: mine", "name: mine\n  config: {a: x}");
    assert!(gateway.reload(&configured).status.success(), "{}", gateway.log());
    assert_eq!(gateway.get("/").text(), "three");
}

#[test]
fn a_call_that_waits_has_its_vm_until_it_ends() {
    let (release, held) = std::sync::mpsc::channel::<()>();
    let held = std::sync::Mutex::new(held);
    let asked = std::sync::Arc::new(AtomicBool::new(false));
    let is_asked = asked.clone();
    let other = Upstream::start(move |mut peer, _| {
        peer.request();
        is_asked.store(true, Ordering::SeqCst);
        held.lock().unwrap().recv().unwrap();
        peer.send("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n");
    });
    let plugins = Plugins::mine(&format!(
        "return {{ PRIORITY = 10, VERSION = '1.0.0', access = function() \
           if kong.request.get_path() == '/waits' then \
             require('resty.http').new():request_uri('http://{}/') \
             assert(ngx.timer.at(0, print)) \
           end \
           kong.response.exit(200, 'done') end }}",
        other.address
    ));
    let configuration = format!(
        "{}plugins:\n- name: mine\n",
        one_route(Upstream::answering("HTTP/1.1 200 OK\r\n\r\n").address)
    );
    let gateway = plugins.builder("mine", &configuration).start();
    thread::scope(|scope| {
        let waiting = scope.spawn(|| gateway.get("/waits"));
        eventually("the other server is asked", || asked.load(Ordering::SeqCst));
        assert!(gateway.reload(&configuration).status.success());
        assert_eq!(gateway.get("/").text(), "done", "another VM has taken the place");
        release.send(()).unwrap();
        let response = waiting.join().unwrap();
        assert_eq!((response.status, response.text()), (200, "done"), "{}", gateway.log());
    });
}

/// What `configure` begins, such as timers, must not double.
#[test]
fn a_reload_calls_init_worker_and_configure_once_on_each_worker() {
    let handler = |name: &str, priority: u32| {
        format!(
            "return {{ PRIORITY = {priority}, VERSION = '1.0.0', \
               init_worker = function() kong.log.notice('{name} begins') end, \
               configure = function(_, configs) kong.log.notice('{name} configured: ', configs and configs[1].text) end }}"
        )
    };
    let schema = SCHEMA.replace("fields = {} }", "fields = { { text = { type = 'string' } } } }");
    let plugins = Plugins::new(&[
        ("first/handler.lua", &handler("first", 20)),
        ("first/schema.lua", &schema.replace("mine", "first")),
        ("second/handler.lua", &handler("second", 10)),
        ("second/schema.lua", &schema.replace("mine", "second")),
    ]);
    let configuration = |text: &str| {
        let config = format!("config: {{text: {text}}}");
        format!(
            "_format_version: '3.0'\nplugins:\n- {{name: first, {config}}}\n- {{name: second, {config}}}\n"
        )
    };
    let gateway = plugins.builder("first,second", &configuration("old")).set("workers", "2").start();
    let counts = |text: &str| {
        let log = gateway.log();
        let count = |line: &str| log.matches(line).count();
        ["first", "second"]
            .map(|name| [count(&format!("{name} begins")), count(&format!("{name} configured: {text}"))])
    };
    eventually("both workers have begun", || counts("old") == [[2, 2], [2, 2]]);
    assert!(gateway.reload(&configuration("old")).status.success());
    // A worker that got a new VM with a request has begun by the response.
    (0..8).for_each(|_| assert_eq!(gateway.get("/").status, 404));
    assert_eq!(counts("old"), [[4, 4], [4, 4]], "{}", gateway.log());
    assert!(gateway.reload(&configuration("new")).status.success());
    assert_eq!(counts("old"), [[6, 4], [6, 4]], "{}", gateway.log());
    assert_eq!(counts("new"), [[6, 2], [6, 2]], "{}", gateway.log());
}

/// A handler of about 1,000 lines, which says its version and keeps some state.
fn long_handler(version: usize) -> String {
    let functions: String = (0..240)
        .map(|number| {
            format!("function parts.f{number}(a)\n  if a then\n    return a + {number}\n  end\nend\n")
        })
        .collect();
    format!(
        "local parts, state = {{}}, {{}}\n{functions}
for i = 1, 1000 do state[i] = {{ i }} end
return {{ PRIORITY = 10, VERSION = '1.0.0', access = function()
  if kong.request.get_path() == '/slow' then ngx.sleep(0.05) end
  kong.response.exit(200, tostring({version} + parts.f0(0)), {{ ['Content-Type'] = 'text/plain' }})
end }}"
    )
}

fn resident(gateway: &Gateway) -> usize {
    let status = std::fs::read_to_string(format!("/proc/{}/status", gateway.pid())).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() << 10
}

/// Asks over one connection until told to stop. Versions never go back, because a worker has one VM for what begins.
fn ask(gateway: &Gateway, path: &str, done: &AtomicBool, served: &AtomicUsize) {
    let (mut client, mut newest) = (gateway.connect(), 0);
    while !done.load(Ordering::SeqCst) {
        let response = client.send(format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n")).response();
        assert_eq!(response.status, 200, "{}", response.text());
        let version: usize = response.text().parse().unwrap();
        assert!(version >= newest, "{version} after {newest}");
        newest = version;
        served.fetch_add(1, Ordering::SeqCst);
        // Other tests need the processors too.
        thread::park_timeout(Duration::from_millis(1));
    }
}

/// Ends the load, also where the test fails.
struct EndsLoad<'a>(&'a AtomicBool);

impl Drop for EndsLoad<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// How much larger the node may become over the later reloads: much less than the VMs that were replaced.
const MAX_GROWTH: usize = 24 << 20;

#[test]
fn a_hundred_reloads_lose_no_request_and_leave_no_vm_behind() {
    let plugins = Plugins::mine(&long_handler(0));
    let configuration = format!(
        "{}plugins:\n- name: mine\n",
        one_route(Upstream::answering("HTTP/1.1 200 OK\r\n\r\n").address)
    );
    let gateway =
        plugins.builder("mine", &configuration).set("workers", "2").set("keepalive_requests", "1000000000");
    let gateway = gateway.start();
    let (done, served) = (AtomicBool::new(false), AtomicUsize::new(0));
    let (mut early, mut late) = (0, 0);
    thread::scope(|scope| {
        for path in ["/", "/", "/slow", "/slow"] {
            let (gateway, done, served) = (&gateway, &done, &served);
            scope.spawn(move || ask(gateway, path, done, served));
        }
        let _ends = EndsLoad(&done);
        for version in 1..=100 {
            plugins.write("mine/handler.lua", &long_handler(version));
            let before = served.load(Ordering::SeqCst);
            let output = gateway.reload(&configuration);
            assert!(output.status.success(), "{output:?}");
            eventually("requests are served between reloads", || served.load(Ordering::SeqCst) > before + 4);
            match version {
                20 => early = resident(&gateway),
                100 => late = resident(&gateway),
                _ => {}
            }
        }
    });
    assert!(late < early + MAX_GROWTH, "{early} bytes, then {late}");
    assert_eq!(gateway.get("/").text(), "100");
}
