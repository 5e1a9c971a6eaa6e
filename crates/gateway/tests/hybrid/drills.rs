//! What goes wrong in fleets of Weir: killed control planes, frozen data planes, refused configurations, starts alone.
use crate::durability::ask;
use crate::fleet::{
    control_plane, data_plane, is_ready, lasting, lasting_address, members, route, shared, state,
    with_certificate,
};
use crate::harness::{Builder, Gateway, Identity, PATIENCE, Peer, Upstream, closed_port, eventually, weir};
use rustix::process::Signal;
use serde_json::{Value, json};
use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

const HELLO: &str = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";

#[test]
fn a_control_plane_that_is_killed_loses_no_request_and_no_write() {
    kill_under_load(4);
}

#[test]
#[ignore = "takes a minute; the test above kills it four times"]
fn a_control_plane_that_is_killed_twenty_times_loses_no_request_and_no_write() {
    kill_under_load(20);
}

/// Kills the control plane so often while writers write to it and clients send requests to its data plane.
fn kill_under_load(kills: u64) {
    let (identity, upstream) = (shared(), Upstream::answering(HELLO));
    let folder = tempfile::tempdir().unwrap();
    let start = |listen: &str| lasting(&identity, folder.path(), listen);
    let listen = lasting_address();
    let mut control = start(&listen);
    let data = data_plane(&identity, &control).start();
    assert_eq!(route(&control, "served", &upstream, ""), 200);
    eventually("it is served", || data.get("/served").status == 200);
    let (over, requests) = (AtomicBool::new(false), AtomicU64::new(0));
    let mut written = 0;
    thread::scope(|scope| {
        scope.spawn(|| request_until(&data, &over, &requests));
        // Also where what follows fails, because the scope waits for the thread.
        let _ends = SetsWhenDropped(&over);
        for _ in 0..kills {
            let before = requests.load(Ordering::SeqCst);
            written += write_until_killed(&control, written);
            control.exit();
            control = start(&listen);
            check_written(&control, written);
            eventually("requests are answered meanwhile", || requests.load(Ordering::SeqCst) > before);
        }
    });
    assert_eq!(route(&control, "last", &upstream, ""), 200);
    eventually("what was written last is served", || data.get("/last").status == 200);
    let requests = requests.load(Ordering::SeqCst);
    eprintln!("{kills} kills, {requests} requests and {written} acknowledged writes, none of them lost");
}

struct SetsWhenDropped<'a>(&'a AtomicBool);

impl Drop for SetsWhenDropped<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// Sends one request after the other over kept connections; each is answered.
fn request_until(data: &Gateway, over: &AtomicBool, requests: &AtomicU64) {
    let mut peer = data.connect();
    while !over.load(Ordering::SeqCst) {
        let response = peer.send("GET /served HTTP/1.1\r\nHost: localhost\r\n\r\n").response();
        assert_eq!((response.status, response.text()), (200, "hello"));
        requests.fetch_add(1, Ordering::SeqCst);
        // After `keepalive_requests`.
        if response.header("connection") == Some("close") {
            peer = data.connect();
        }
    }
}

/// Creates consumers from this number on, and kills the node in the middle of it. Returns how many it acknowledged.
fn write_until_killed(control: &Gateway, first: u64) -> u64 {
    let mut stream = TcpStream::connect(control.admin_addresses()[0]).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let enough = 1 + fastrand::u64(..40);
    let acknowledged = AtomicU64::new(0);
    thread::scope(|scope| {
        scope.spawn(|| {
            while let Some(status) = ask(&mut stream, &put(first + acknowledged.load(Ordering::SeqCst))) {
                assert_eq!(status, 200);
                acknowledged.fetch_add(1, Ordering::SeqCst);
            }
        });
        eventually("writes are acknowledged", || acknowledged.load(Ordering::SeqCst) >= enough);
        control.signal(Signal::KILL);
    });
    acknowledged.into_inner()
}

fn put(number: u64) -> String {
    format!("PUT /consumers/written-{number} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n")
}

/// Every consumer that was acknowledged is there.
fn check_written(control: &Gateway, count: u64) {
    for number in 0..count {
        assert_eq!(control.admin(&format!("/consumers/written-{number}")).status, 200, "{number} of {count}");
    }
}

#[test]
fn a_refusal_is_shown_with_entity_and_field() {
    let identity = shared();
    // Data planes should have the same flavor. This one does not read expressions.
    let control = control_plane(&identity).set("router_flavor", "expressions").start();
    let data = data_plane(&identity, &control).start();
    eventually("it is connected", || state(&control) == "connected");
    let route = json!({ "expression": "http.path == \"/a\"" });
    let path = "/routes/00000000-0000-4000-8000-000000000001";
    // The answer comes with the refusal, although the write would wait for longer than the test does.
    let refused = control.ask_admin("PUT", &format!("{path}?wait=all,60000"), &route.to_string());
    assert_eq!((refused.status, state(&control)), (202, "failed".to_owned()), "{}", refused.text());
    let message = "saved, but 1 of 1 data planes do not serve it: 1 refuse it or cannot be sent it";
    assert_eq!(refused.json()["message"], message);
    let refusal = refused.json()["behind"][0]["last_refusal"][0].clone();
    let said = |name: &str| refusal[name].as_str().unwrap_or_default().to_owned();
    assert!(said("entity").contains("00000000-0000-4000-8000-000000000001"), "{refusal}");
    assert_eq!(said("field"), "expression", "{refusal}");
    assert!(!said("message").is_empty(), "{refusal}");
    let member = members(&control)[0].clone();
    assert_eq!((&member["state"], &member["refusals"]), (&json!("failed"), &json!(1)), "{member}");
    assert_eq!(data.status("/status").json()["control_plane"]["refused"].as_array().unwrap().len(), 1);
    let later = control.ask_admin("PUT", "/consumers/ann?wait=all,60000", "{}");
    assert_eq!(
        (later.status, &later.json()["behind"][0]["state"]),
        (202, &json!("failed")),
        "so is the next"
    );
    assert_eq!(control.ask_admin("DELETE", &format!("{path}?wait=all,60000"), "").status, 204);
    assert_eq!((state(&control), members(&control)[0]["lag"].clone()), ("connected".to_owned(), json!(0)));
}

#[test]
#[ignore = "a connection counts as lost after 45 s"]
fn a_frozen_data_plane_is_shown_offline() {
    let identity = shared();
    let control = control_plane(&identity).start();
    let data = data_plane(&identity, &control).start();
    eventually("it is connected", || state(&control) == "connected");
    data.signal(Signal::STOP);
    let begun = Instant::now();
    while state(&control) != "offline" {
        assert!(begun.elapsed() < Duration::from_secs(60), "it is still {}", state(&control));
        thread::park_timeout(Duration::from_millis(100));
    }
    eprintln!("shown offline after {:?}", begun.elapsed());
    data.signal(Signal::CONT);
    eventually("it comes back", || state(&control) == "connected");
}

/// The routes of a large configuration, which all lead to one upstream.
const ROUTES: u32 = 10_000;

/// A control plane with [`ROUTES`].
fn large(identity: &Identity, upstream: SocketAddr, folder: &Path) -> Builder {
    let routes = (0..ROUTES).map(|nth| json!({ "name": format!("r{nth}"), "paths": [format!("/r{nth}")] }));
    let service = json!({
        "name": "s", "url": format!("http://{upstream}"), "routes": routes.collect::<Vec<_>>()
    });
    let file = folder.join("kong.json");
    let text = json!({ "_format_version": "3.0", "services": [service] }).to_string();
    fs::write(&file, text).unwrap();
    let prefix = folder.join("control").display().to_string();
    let mut import = weir();
    import.args(["config", "db_import"]).arg(&file).args(["--prefix", &prefix, "--set", "database=sqlite"]);
    let output = import.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    control_plane(identity).set("prefix", &prefix).set("database", "sqlite")
}

#[test]
fn a_data_plane_with_many_routes_answers_without_its_control_plane() {
    let (identity, upstream) = (shared(), Upstream::answering(HELLO));
    let folder = tempfile::tempdir().unwrap();
    let prefix = folder.path().join("data").display().to_string();
    let control = large(&identity, upstream.address, folder.path()).start();
    let data = data_plane(&identity, &control).set("prefix", &prefix).start();
    eventually("it has stored everything", || is_in_force(&control));
    data.signal(Signal::KILL);
    drop((data, control));
    let alone = without_control_plane(&identity).set("prefix", &prefix);
    let begun = Instant::now();
    let data = alone.start();
    assert_eq!((data.get("/r9999").status, data.get("/r0").status, is_ready(&data)), (200, 200, true));
    eprintln!("answers {ROUTES} routes {:?} after exec, without a control plane", begun.elapsed());
}

/// A data plane at whose control plane's address nothing answers.
pub(super) fn without_control_plane(identity: &Identity) -> Builder {
    let builder = Gateway::empty().set("role", "data_plane");
    with_certificate(builder.set("cluster_control_plane", &closed_port().to_string()), identity)
}

/// Whether every data plane has acknowledged everything: then it is in their caches as well.
fn is_in_force(control: &Gateway) -> bool {
    control.admin("/clustering/in-force").json()["in_force"] == true
}

#[test]
fn an_apply_whose_connection_ends_leaves_the_old_or_the_new_configuration() {
    let (identity, upstream) = (shared(), Upstream::answering(HELLO));
    let folder = tempfile::tempdir().unwrap();
    let start = |listen: &str| {
        large(&identity, upstream.address, folder.path()).set("cluster_listen", listen).start()
    };
    let listen = lasting_address();
    let mut control = start(&listen);
    let prefix = folder.path().join("data").display().to_string();
    let data = data_plane(&identity, &control).set("prefix", &prefix).start();
    eventually("something is sent", || pushed_bytes(&control) > 0 || is_ready(&data));
    control.signal(Signal::KILL);
    control.exit();
    let (first, last) = (data.get("/r0").status, data.get("/r9999").status);
    assert!((first, last) == (404, 404) || (first, last) == (200, 200), "{first} {last}");
    let control = start(&listen);
    eventually("it serves everything", || data.get("/r9999").status == 200 && data.get("/r0").status == 200);
    assert_eq!(control.ask_admin("DELETE", "/routes/r0", "").status, 204);
    // A busy machine takes longer than the minute that a write can wait.
    eventually("the next change is served", || data.get("/r0").status == 404);
    assert_eq!(data.get("/r9999").status, 200);
    eventually("and acknowledged", || is_in_force(&control));
}

fn pushed_bytes(control: &Gateway) -> u64 {
    members(control).first().map_or(0, |member: &Value| member["pushed_bytes"].as_u64().unwrap())
}

#[test]
fn a_data_plane_that_moves_to_an_empty_control_plane_serves_nothing() {
    let (identity, upstream) = (shared(), Upstream::answering(HELLO));
    let folder = tempfile::tempdir().unwrap();
    let prefix = folder.path().join("data").display().to_string();
    let full = control_plane(&identity).start();
    let data = data_plane(&identity, &full).set("prefix", &prefix).start();
    assert_eq!(route(&full, "a", &upstream, ""), 200);
    eventually("it is stored", || is_in_force(&full));
    drop((data, full));
    let (alone, empty) = (without_control_plane(&identity), control_plane(&identity).start());
    assert_eq!(alone.set("prefix", &prefix).start().get("/a").status, 200, "it is still cached");
    let data = data_plane(&identity, &empty).set("prefix", &prefix).start();
    eventually("the empty configuration is served", || data.get("/a").status == 404);
    assert!(is_ready(&data));
    eventually("both agree", || state(&empty) == "connected");
    assert_eq!(Peer::connect(data.proxy()).send("GET / HTTP/1.1\r\nHost: h\r\n\r\n").response().status, 404);
}
