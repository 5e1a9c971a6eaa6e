//! Analytics of a fleet: what data planes have served, the control plane answers for, once and without loss.
use crate::control_planes::{Fleet, place};
use crate::fleet::{control_plane, data_plane, members, route, shared};
use crate::harness::{Gateway, Identity, Upstream, eventually};
use bytes::Bytes;
use rustix::process::Signal;
use serde_json::{Value, json};
use std::fs;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};
use tokio::sync::oneshot;
use weir_cluster::connect::{Connector, Endpoint};
use weir_cluster::data_plane::{About, Analytics, DataPlane, LastFrame, Options, Stored};
use weir_cluster::tls::{ClientTls, Trust};
use weir_cluster::{Apply, Refusal, Update};
use weir_model::Uuid;

const HELLO: &str = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";

fn ask(node: &Gateway, path: &str) -> Value {
    let answer = node.admin(path);
    assert_eq!(answer.status, 200, "{path}: {}", answer.text());
    answer.json()
}

/// The sum of a chart's columns.
fn sum(node: &Gateway, query: &str) -> f64 {
    let chart = ask(node, &format!("/analytics/series?{query}"));
    let columns = chart["columns"].as_array().unwrap().iter();
    columns.flat_map(|column| column["values"].as_array().unwrap()).filter_map(Value::as_f64).sum()
}

fn serve(data: &Gateway, path: &str, times: usize) {
    (0..times).for_each(|_| assert_eq!(data.get(path).status, 200));
}

/// How long a frame may take on a slow machine: intervals are of ten seconds.
const FRAME_PATIENCE: Duration = Duration::from_secs(60);

/// Waits for frames.
#[track_caller]
fn in_time(what: &str, mut is_so: impl FnMut() -> bool) {
    let end = Instant::now() + FRAME_PATIENCE;
    while !is_so() {
        assert!(Instant::now() < end, "never happened: {what}");
        thread::park_timeout(Duration::from_millis(50));
    }
}

/// Waits until so many requests are known, and no more.
#[track_caller]
fn handed_in(control: &Gateway, requests: f64) {
    in_time("everything is handed in", || {
        sum(control, "") >= requests && ask(control, "/analytics/nodes")["fleet"]["pending"] == 0
    });
    assert_eq!(sum(control, ""), requests);
}

#[test]
fn a_control_plane_answers_for_its_data_planes() {
    let (identity, upstream) = (shared(), Upstream::answering(HELLO));
    let control = control_plane(&identity).start();
    let planes = [(); 3].map(|()| data_plane(&identity, &control).start());
    eventually("all are connected", || members(&control).len() == 3);
    for name in ["a", "b"] {
        assert_eq!(route(&control, name, &upstream, "?wait=100%"), 200);
    }
    for (data, times) in planes.iter().zip([3, 5, 7]) {
        serve(data, "/a", times);
        assert_eq!(data.get("/nothing").status, 404);
    }
    serve(&planes[0], "/b", 2);
    handed_in(&control, 20.0);
    assert_eq!((sum(&control, "route=a"), sum(&control, "route=b")), (15.0, 2.0));
    assert_eq!((sum(&control, "service=b"), sum(&control, "metric=errors")), (2.0, 3.0));
    let errors = ask(&control, "/analytics/errors");
    assert_eq!((&errors["data"][0]["cause"], &errors["data"][0]["count"]), (&json!("no_route"), &json!(3)));
    let top = ask(&control, "/analytics/top?by=route&limit=1");
    assert_eq!((&top["data"][0]["name"], &top["data"][0]["requests"]), (&json!("a"), &json!(15)));
    let nodes = ask(&control, "/analytics/nodes");
    let mut each = Vec::new();
    for node in nodes["data"].as_array().unwrap() {
        let id = node["id"].as_str().unwrap();
        assert_eq!(sum(&control, &format!("node={id}")), node["requests"].as_f64().unwrap());
        assert!(node["p99"].as_f64().unwrap() > 0.0 && node["requests_per_second"].as_f64().unwrap() > 0.0);
        let sparkline = node["sparkline"].as_array().unwrap().iter().filter_map(Value::as_f64);
        each.push((
            node["requests"].as_u64().unwrap(),
            sparkline.sum::<f64>(),
            node["errors"].as_u64().unwrap(),
        ));
    }
    each.sort_by_key(|(requests, ..)| *requests);
    assert_eq!(each, [(6, 6.0, 1), (6, 6.0, 1), (8, 8.0, 1)]);
    assert_eq!(sum(&control, "by=node"), 20.0);
    assert_eq!(ask(&control, "/analytics/top?by=node")["total"], 3);
    vitals_are_those_of_the_data_planes(&control);
    let fleet = &nodes["fleet"];
    assert_eq!((&fleet["complete"], &fleet["data_planes"]), (&json!(true), &json!(3)), "{fleet}");
    assert!(fleet["until"].as_u64() > Some(1_700_000_000), "{fleet}");
    let alone = Gateway::empty().start().admin("/analytics/nodes");
    assert_eq!(alone.status, 400, "{}", alone.text());
}

fn vitals_are_those_of_the_data_planes(control: &Gateway) {
    let requests = |points: &Value| -> u64 {
        points.as_object().unwrap().values().map(|point| point[6].as_u64().unwrap()).sum()
    };
    let vitals = ask(control, "/vitals/nodes?interval=minutes");
    let nodes = vitals["stats"].as_object().unwrap();
    assert_eq!((nodes.len(), nodes.values().map(requests).sum::<u64>()), (3, 20), "{vitals}");
    for (id, points) in nodes {
        let one = ask(control, &format!("/vitals/nodes/{id}?interval=minutes"));
        assert_eq!(
            (requests(points), &one["meta"]["nodes"][id]["hostname"]),
            (requests(&one["stats"][id]), &vitals["meta"]["nodes"][id]["hostname"])
        );
    }
    let fleet = ask(control, "/vitals/cluster?interval=minutes");
    assert_eq!(requests(&fleet["stats"]["cluster"]), 20);
}

/// Nodes that keep what they know over restarts.
struct Lasting {
    identity: Identity,
    folder: tempfile::TempDir,
    listen: String,
}

impl Lasting {
    fn new() -> (Lasting, Gateway) {
        let folder = tempfile::tempdir().unwrap();
        let mut fleet = Lasting { identity: shared(), folder, listen: "127.0.0.1:0".to_owned() };
        let control = fleet.control_plane();
        fleet.listen = control.cluster().to_string();
        (fleet, control)
    }

    fn prefix(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }

    fn control_plane(&self) -> Gateway {
        let builder = control_plane(&self.identity).set("cluster_listen", &self.listen);
        builder.set("prefix", &self.prefix("control")).start()
    }

    fn data_plane(&self, control: &Gateway) -> Gateway {
        data_plane(&self.identity, control).set("prefix", &self.prefix("data")).start()
    }
}

#[test]
fn what_is_served_while_the_control_plane_is_away_is_handed_in_later() {
    let upstream = Upstream::answering(HELLO);
    let (fleet, mut control) = Lasting::new();
    let data = fleet.data_plane(&control);
    eventually("it is connected", || members(&control).len() == 1);
    assert_eq!(route(&control, "a", &upstream, "?wait=100%"), 200);
    serve(&data, "/a", 4);
    handed_in(&control, 4.0);
    for times in [5, 6] {
        serve(&data, "/a", times);
        control.signal(Signal::KILL);
        control.exit();
        serve(&data, "/a", times);
        control = fleet.control_plane();
    }
    handed_in(&control, 26.0);
    assert_eq!(ask(&control, "/analytics/nodes")["fleet"]["lost"], 0);
}

#[test]
fn a_data_plane_that_restarts_loses_nothing_and_one_that_is_killed_only_what_is_not_stored() {
    let upstream = Upstream::answering(HELLO);
    let (fleet, control) = Lasting::new();
    let mut data = fleet.data_plane(&control);
    eventually("it is connected", || members(&control).len() == 1);
    assert_eq!(route(&control, "a", &upstream, "?wait=100%"), 200);
    serve(&data, "/a", 4);
    data.signal(Signal::QUIT);
    data.exit();
    data = fleet.data_plane(&control);
    serve(&data, "/a", 5);
    handed_in(&control, 9.0);
    serve(&data, "/a", 6);
    data.signal(Signal::KILL);
    data.exit();
    data = fleet.data_plane(&control);
    serve(&data, "/a", 7);
    let node = |member: &str| ask(&control, "/analytics/nodes")["data"][0][member].as_u64().unwrap_or(0);
    let since = node("until");
    in_time("what it has served since is handed in", || node("until") > since + 30);
    let requests = sum(&control, "");
    assert!((16.0..=22.0).contains(&requests), "{requests} of 22");
}

#[test]
fn a_data_plane_that_moves_counts_at_one_control_plane_at_a_time() {
    let (fleet, upstream) = (Fleet::new("fleet_analytics"), Upstream::answering(HELLO));
    let mut planes = fleet.control_planes();
    let folder = tempfile::tempdir().unwrap();
    let data = fleet.data_plane(&planes).set("prefix", &folder.path().display().to_string()).start();
    let at = place(&data, &planes);
    assert_eq!(route(&planes[at], "a", &upstream, "?wait=100%"), 200);
    serve(&data, "/a", 4);
    handed_in(&planes[at], 4.0);
    in_time("the other says that it lacks it", || {
        let coverage = &ask(&planes[1 - at], "/analytics/nodes")["fleet"];
        coverage["elsewhere"] == 1 && coverage["complete"] == false
    });
    serve(&data, "/a", 5);
    planes[at].signal(Signal::QUIT);
    planes[at].exit();
    serve(&data, "/a", 6);
    handed_in(&planes[1 - at], 11.0);
    assert!(fs::exists(folder.path().join("analytics")).unwrap());
}

/// A data plane that applies everything.
struct Indifferent;

impl Apply for Indifferent {
    async fn apply(&self, _: Update, _: String) -> Result<(), Vec<Refusal>> {
        Ok(())
    }
}

/// Sends the same bytes as each frame, and notes what happened to them.
struct Garbage(Bytes, Mutex<Vec<LastFrame>>);

impl Analytics for Garbage {
    fn next(&self, last: LastFrame) -> oneshot::Receiver<Bytes> {
        let (sender, next) = oneshot::channel();
        self.1.lock().unwrap().push(last);
        sender.send(self.0.clone()).unwrap();
        next
    }
}

/// A data plane in this process that sends these frames.
fn sending(identity: &Identity, to: &Gateway, frame: Bytes) -> Arc<Garbage> {
    let [certificate, key] = [identity.cert(), identity.key()].map(|path| fs::read_to_string(path).unwrap());
    let identity = weir_cluster::tls::Identity::read(&certificate, &key).unwrap();
    let frame_len = frame.len();
    let garbage = Arc::new(Garbage(frame, Mutex::default()));
    let plane = DataPlane {
        apply: Arc::new(Indifferent),
        connector: Connector { tls: ClientTls::new(&identity, &Trust::Shared).unwrap(), proxy: None },
        control_planes: vec![to.cluster().to_string().parse::<Endpoint>().unwrap()],
        about: About {
            id: Uuid::from_u128(frame_len as u128 + 1),
            hostname: "hostile".to_owned(),
            version: "3.9.1".to_owned(),
            plugins: Vec::new(),
            settings: Default::default(),
            labels: Default::default(),
        },
        options: Options { max_payload: 16 << 20, reports_errors: false, incremental_sync: false },
        plugins: [].into(),
        status: Arc::default(),
        analytics: Some(garbage.clone()),
    };
    thread::spawn(|| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(plane.run(Stored::default()));
    });
    garbage
}

/// A frame without counts, of a time that has not come.
fn early_frame() -> Bytes {
    let start = std::time::UNIX_EPOCH.elapsed().unwrap().as_secs() + 10_000;
    let mut frame = Vec::new();
    for mut number in [1, start, 0, start + 10, 0, 0, 0, 0] {
        while number >= 0x80 {
            frame.push(number as u8 | 0x80);
            number >>= 7;
        }
        frame.push(number as u8);
    }
    frame.into()
}

#[test]
fn broken_frames_are_refused_on_both_sides_and_disturb_no_other() {
    let (identity, upstream) = (shared(), Upstream::answering(HELLO));
    let control = control_plane(&identity).start();
    let data = data_plane(&identity, &control).start();
    eventually("it is connected", || members(&control).len() == 1);
    assert_eq!(route(&control, "a", &upstream, "?wait=100%"), 200);
    for frame in [Bytes::from_static(b"\x09nonsense"), Bytes::from(vec![1; 3 << 20]), Bytes::new()] {
        let garbage = sending(&identity, &control, frame);
        eventually("the data plane knows", || garbage.1.lock().unwrap().contains(&LastFrame::Refused));
    }
    let early = sending(&identity, &control, early_frame());
    eventually("it keeps the frame", || early.1.lock().unwrap().contains(&LastFrame::Later));
    assert!(!early.1.lock().unwrap().contains(&LastFrame::Refused));
    eventually("the log says whose", || control.log().contains("analytics of data plane hostile ("));
    serve(&data, "/a", 4);
    handed_in(&control, 4.0);
}
