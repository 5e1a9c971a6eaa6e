//! Fakes of Kong 3.9's control plane and data plane, in Python; and that the two understand each other.
//!
//! `kong/control_plane.py` and `kong/data_plane.py` say which options, commands and events they have. Both drop the connection
//! wherever Kong would: at a text frame, a fragmented one, a ping before the first message, a ping of another length, a frame
//! beyond the limit.
use crate::harness::Identity;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::time::Duration;

/// Longer than anything here takes.
const EVENT_TIMEOUT: Duration = Duration::from_secs(120);

/// A fake that runs; it ends when dropped.
pub(crate) struct Fake {
    child: Child,
    commands: Option<ChildStdin>,
    events: Receiver<Value>,
}

impl Fake {
    /// A control plane, and the port that it listens on.
    pub(crate) fn control_plane(identity: &Identity, options: Value) -> (Fake, u64) {
        let fake = Fake::start("control_plane.py", identity, options);
        let port = fake.event("listening")["port"].as_u64().unwrap();
        (fake, port)
    }

    /// A data plane of the control plane at this port.
    pub(crate) fn data_plane(port: u64, identity: &Identity, mut options: Value) -> Fake {
        options["port"] = port.into();
        Fake::start("data_plane.py", identity, options)
    }

    fn start(script: &str, identity: &Identity, mut options: Value) -> Fake {
        options["cert"] = json!(identity.cert());
        options["key"] = json!(identity.key());
        let script = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/hybrid/kong")).join(script);
        let mut command = Command::new("/usr/bin/python3");
        command.arg("-B").arg(script).arg(options.to_string()).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("Python runs");
        let (commands, output) = (child.stdin.take(), child.stdout.take().unwrap());
        let (sender, events) = mpsc::channel();
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                let _ = sender.send(serde_json::from_str(&line).expect("a line of JSON"));
            }
        });
        Fake { child, commands, events }
    }

    /// Sends a command.
    #[track_caller]
    pub(crate) fn command(&mut self, command: &Value) {
        writeln!(self.commands.as_mut().unwrap(), "{command}").expect("the fake still runs");
    }

    /// The next event of this name; those before it are skipped.
    #[track_caller]
    pub(crate) fn event(&self, name: &str) -> Value {
        let mut last = Value::Null;
        loop {
            let event = self.events.recv_timeout(EVENT_TIMEOUT);
            let event = event.unwrap_or_else(|why| panic!("no event `{name}` after {last}: {why}"));
            if event["event"] == name {
                return event;
            }
            last = event;
        }
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        // A control plane ends its nginx once its input has ended.
        drop(self.commands.take());
        let _ = self.child.wait();
    }
}

fn configuration() -> Value {
    let service =
        json!({ "id": "11111111-1111-4111-8111-111111111111", "name": "a", "host": "h", "path": null });
    let route =
        json!({ "id": "22222222-2222-4222-8222-222222222222", "paths": ["/a"], "service": service["id"] });
    json!({ "services": [service], "routes": [route] })
}

fn shared() -> Identity {
    Identity::self_signed_version_1("kong_clustering")
}

#[test]
fn the_fakes_of_kong_sync_with_each_other() {
    let identity = shared();
    let (mut control_plane, port) =
        Fake::control_plane(&identity, json!({ "config_table": configuration() }));
    let data_plane = Fake::data_plane(port, &identity, json!({ "labels": { "region": "eu" } }));
    assert_eq!(data_plane.event("connected")["tls"], "TLSv1.3");
    assert_eq!(control_plane.event("basic_info")["info"]["labels"]["region"], "eu");
    let pushed = control_plane.event("pushed");
    let applied = data_plane.event("applied");
    assert_eq!((&applied["hash"], &applied["hash_matches"]), (&pushed["hash"], &json!(true)));
    while control_plane.event("ping")["hash"] != pushed["hash"] {}
    control_plane.command(&json!({ "push": {} }));
    assert_eq!(data_plane.event("applied")["hash"], "0".repeat(32));
}

#[test]
fn the_fakes_of_kong_sync_with_each_other_by_pki_and_deltas() {
    let authority = Identity::new("authority");
    let (cp, dp) = (Identity::signed("cp.test", &authority), Identity::signed("dp.test", &authority));
    let (mut control_plane, port) = Fake::control_plane(&cp, json!({ "ca": authority.cert(), "rpc": true }));
    let options = json!({ "ca": authority.cert(), "server_name": "cp.test", "rpc": true });
    let data_plane = Fake::data_plane(port, &dp, options);
    assert_eq!(data_plane.event("connected")["capabilities"], json!(["kong.sync.v2"]));
    assert_eq!(data_plane.event("unchanged")["number"], 0);
    let id = json!({ "id": "11111111-1111-4111-8111-111111111111" });
    let entity = json!({ "id": id["id"], "name": "a".repeat(300), "host": "h" });
    control_plane.command(&json!({ "deltas": [{ "type": "services", "pk": id, "entity": entity }] }));
    let deltas = data_plane.event("deltas");
    assert_eq!((&deltas["wipe"], &deltas["deltas"][0]["entity"]), (&json!(true), &entity));
    while control_plane.event("ping")["hash"] != format!("{:032}", 1) {}
    control_plane.command(&json!({ "deltas": [{ "type": "services", "pk": id, "entity": null }] }));
    let deltas = data_plane.event("deltas");
    assert_eq!((&deltas["wipe"], &deltas["deltas"][0]["pk"]), (&json!(false), &id));
}

/// What a control plane drops the connection for.
#[track_caller]
fn dropped_by_control_plane(options: Value, command: &Value) -> String {
    let identity = shared();
    let (control_plane, port) = Fake::control_plane(&identity, options);
    let mut data_plane = Fake::data_plane(port, &identity, json!({}));
    data_plane.event("pong");
    data_plane.command(command);
    data_plane.event("dropped");
    control_plane.event("dropped")["why"].as_str().unwrap().to_owned()
}

#[test]
fn the_fake_control_plane_drops_what_kong_drops() {
    let frame = |members: Value| json!({ "send": members });
    for (command, why) in [
        (json!({ "ping": "short" }), "a ping of 5 bytes"),
        (frame(json!({ "opcode": 1, "hex": "7b7d" })), "unknown websocket frame: text"),
        (frame(json!({ "opcode": 2, "hex": "7b7d" })), "unknown websocket frame: binary"),
        (frame(json!({ "opcode": 10 })), "unknown websocket frame: pong"),
        (frame(json!({ "opcode": 9, "fin": false })), "the message is fragmented"),
        (frame(json!({ "opcode": 9, "rsv": 4 })), "reserved bits are set"),
        (frame(json!({ "opcode": 9, "masked": false })), "the frame is not masked"),
    ] {
        assert_eq!(dropped_by_control_plane(json!({}), &command), why, "{command}");
    }
    let big = frame(json!({ "opcode": 2, "hex": "00".repeat(5000) }));
    let why = dropped_by_control_plane(json!({ "max_payload": 4096 }), &big);
    assert_eq!(why, "exceeding max payload len: 5000");
}

#[test]
fn the_fake_control_plane_refuses_other_certificates_versions_and_plugins() {
    let (identity, other) = (shared(), shared());
    let plugin = json!({ "id": "33333333-3333-4333-8333-333333333333", "name": "cors", "config": {} });
    let table = json!({ "config_table": { "plugins": [plugin] } });
    let (control_plane, port) = Fake::control_plane(&identity, table);
    Fake::data_plane(port, &other, json!({ "ca": identity.cert(), "server_name": "kong_clustering" }))
        .event("dropped");
    let newer = Fake::data_plane(port, &identity, json!({ "version": "3.10.0" }));
    assert_eq!(control_plane.event("refused")["sync_status"], "kong_version_incompatible");
    newer.event("dropped");
    let lacking = Fake::data_plane(port, &identity, json!({ "plugins": ["acl"] }));
    assert_eq!(control_plane.event("refused")["sync_status"], "plugin_set_incompatible");
    lacking.event("pong");
}

#[test]
fn the_fake_data_plane_drops_what_kong_drops() {
    for (frame, why) in [
        (json!({ "opcode": 2, "hex": "00", "fin": false }), "the message is fragmented"),
        (json!({ "opcode": 2, "hex": "00", "rsv": 4 }), "reserved bits are set"),
        (json!({ "opcode": 2, "hex": "00".repeat(5000) }), "exceeding max payload len: 5000"),
        (json!({ "opcode": 8 }), "a close frame"),
    ] {
        let identity = shared();
        let (mut control_plane, port) = Fake::control_plane(&identity, json!({}));
        let data_plane = Fake::data_plane(port, &identity, json!({ "max_payload": 4096 }));
        data_plane.event("pong");
        control_plane.command(&json!({ "send": { "opcode": 1, "hex": "7b7d" } }));
        assert_eq!(data_plane.event("ignored")["frame"], "text");
        control_plane.command(&json!({ "send": frame }));
        assert_eq!(data_plane.event("dropped")["why"], why);
    }
}

#[test]
fn the_fake_data_plane_refuses_what_kong_refuses() {
    let identity = shared();
    let unknown = json!({ "services": [{ "id": "a", "name": "a", "keepalive": 1 }], "others": [{}] });
    let (_control_plane, port) = Fake::control_plane(&identity, json!({ "config_table": unknown }));
    let data_plane = Fake::data_plane(port, &identity, json!({}));
    let errors = data_plane.event("refused")["errors"].clone();
    assert_eq!(errors, json!(["others: unknown field", "services a: keepalive: unknown field"]));
}
