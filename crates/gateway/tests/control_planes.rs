//! Several control planes of one database, and data planes that move between them.
use crate::fleet::{self, control_plane, members, route, shared, with_certificate};
use crate::harness::{Builder, Gateway, Identity, PostgresServer, Upstream, eventually, weir};
use rustix::process::Signal;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

const HELLO: &str = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";

/// A schema of a database, and the certificate of the nodes that share it.
pub(crate) struct Fleet {
    identity: Identity,
    settings: Vec<(String, String)>,
}

impl Fleet {
    pub(crate) fn new(schema: &str) -> Fleet {
        let settings = PostgresServer::settings(PostgresServer::shared_port(), schema);
        let mut bootstrap = weir();
        bootstrap.args(["migrations", "bootstrap"]);
        bootstrap
            .args(settings.iter().flat_map(|(key, value)| ["--set".to_owned(), format!("{key}={value}")]));
        assert!(bootstrap.status().unwrap().success());
        Fleet { identity: shared(), settings }
    }

    fn control_plane(&self, listen: &str) -> Gateway {
        let builder = control_plane(&self.identity).set("cluster_listen", listen);
        self.settings.iter().fold(builder, |builder, (key, value)| builder.set(key, value)).start()
    }

    pub(crate) fn control_planes(&self) -> [Gateway; 2] {
        [(); 2].map(|()| self.control_plane("127.0.0.1:0"))
    }

    /// A data plane that connects to one of these, and to the other when that fails.
    pub(crate) fn data_plane(&self, to: &[Gateway; 2]) -> Builder {
        let to: Vec<_> = to.iter().map(|plane| plane.cluster().to_string()).collect();
        let builder = Gateway::empty().set("role", "data_plane");
        with_certificate(builder.set("cluster_control_plane", &to.join(",")), &self.identity)
    }
}

/// The control plane that a data plane is connected to; none while it is not.
fn connected_to(data: &Gateway) -> Option<String> {
    let link = data.status("/status").json()["control_plane"].clone();
    (link["connected"] == true).then(|| link["control_plane"].as_str().unwrap().to_owned())
}

fn is_at(data: &Gateway, plane: &Gateway) -> bool {
    connected_to(data) == Some(plane.cluster().to_string())
}

/// Which of the control planes a data plane is connected to.
pub(crate) fn place(data: &Gateway, planes: &[Gateway; 2]) -> usize {
    eventually("it is connected", || planes.iter().any(|plane| is_at(data, plane)));
    usize::from(is_at(data, &planes[1]))
}

/// Asks a data plane for a path without a pause, until it is dropped.
struct Traffic {
    ends: Arc<AtomicBool>,
    served: Arc<AtomicUsize>,
    client: Option<thread::JoinHandle<usize>>,
}

impl Traffic {
    fn to(data: &Gateway, path: &'static str) -> Traffic {
        let (ends, served) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let (proxy, is_over, counted) = (data.proxy(), ends.clone(), served.clone());
        let client = thread::spawn(move || {
            let mut failed = 0;
            while !is_over.load(Ordering::Relaxed) {
                let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n");
                let response = crate::harness::Peer::connect(proxy).send(request).response();
                failed += usize::from(response.status != 200);
                counted.fetch_add(1, Ordering::Relaxed);
            }
            failed
        });
        Traffic { ends, served, client: Some(client) }
    }

    /// How many requests failed. Some are served after the call, at least.
    fn failures(mut self) -> usize {
        let served = self.served.load(Ordering::Relaxed);
        eventually("requests are served", || self.served.load(Ordering::Relaxed) > served + 10);
        self.ends.store(true, Ordering::Relaxed);
        self.client.take().unwrap().join().unwrap()
    }
}

#[test]
fn a_data_plane_moves_between_control_planes_without_a_gap() {
    let (fleet, upstream) = (Fleet::new("moves"), Upstream::answering(HELLO));
    let mut planes = fleet.control_planes();
    let data = fleet.data_plane(&planes).start();
    let at = place(&data, &planes);
    assert_eq!(route(&planes[at], "kept", &upstream, "?wait=100%"), 200);
    let traffic = Traffic::to(&data, "/kept");
    for (number, stop) in [Signal::KILL, Signal::QUIT, Signal::TERM].into_iter().enumerate() {
        let at = place(&data, &planes);
        let (before, since) = (format!("before-{number}"), format!("since-{number}"));
        assert_eq!(route(&planes[at], &before, &upstream, "?wait=100%"), 200);
        planes[at].signal(stop);
        planes[at].exit();
        eventually("it is connected to the other", || is_at(&data, &planes[1 - at]));
        assert_eq!(data.get(&format!("/{before}")).status, 200);
        assert_eq!(route(&planes[1 - at], &since, &upstream, "?wait=100%"), 200);
        assert_eq!(data.get(&format!("/{since}")).status, 200);
        planes[at] = fleet.control_plane(&planes[at].cluster().to_string());
    }
    assert_eq!(traffic.failures(), 0);
}

#[test]
fn a_control_plane_that_lags_behind_sends_nothing_older() {
    let (fleet, upstream) = (Fleet::new("lags"), Upstream::answering(HELLO));
    let mut planes = fleet.control_planes();
    let data = fleet.data_plane(&planes).start();
    let at = place(&data, &planes);
    let other = 1 - at;
    planes[other].signal(Signal::STOP);
    assert_eq!(route(&planes[at], "new", &upstream, "?wait=100%"), 200);
    let port = PostgresServer::shared_port();
    let lock = PostgresServer::session(port, "BEGIN; LOCK TABLE lags.weir_meta IN ACCESS EXCLUSIVE MODE");
    planes[other].signal(Signal::CONT);
    planes[at].signal(Signal::KILL);
    planes[at].exit();
    let waits = "it is sent nothing until the database has been read";
    eventually("it is ahead of the other", || planes[other].log().contains(waits));
    assert_eq!(planes[other].admin("/routes/new").status, 404);
    assert_eq!(
        (data.get("/new").status, members(&planes[other])[0]["state"].clone()),
        (200, "connected".into())
    );
    drop(lock);
    eventually("the other has caught up", || planes[other].admin("/routes/new").status == 200);
    assert_eq!(route(&planes[other], "last", &upstream, "?wait=100%"), 200);
    assert_eq!((data.get("/new").status, data.get("/last").status), (200, 200));
}

#[test]
fn a_database_that_was_restored_from_a_backup_counts() {
    let (fleet, upstream) = (Fleet::new("restored"), Upstream::answering(HELLO));
    let mut planes = fleet.control_planes();
    let data = fleet.data_plane(&planes).start();
    let at = place(&data, &planes);
    assert_eq!(route(&planes[at], "old", &upstream, ""), 200);
    assert_eq!(route(&planes[at], "lost", &upstream, "?wait=100%"), 200);
    for plane in &mut planes {
        plane.signal(Signal::KILL);
        plane.exit();
    }
    PostgresServer::execute(
        PostgresServer::shared_port(),
        "SET search_path TO restored; UPDATE weir_meta SET revision = 2; DELETE FROM weir_entities WHERE revision > 2",
    );
    let listen = planes[at].cluster().to_string();
    planes[at] = fleet.control_plane(&listen);
    eventually("what the database lacks is gone", || data.get("/lost").status == 404);
    assert_eq!(data.get("/old").status, 200);
}

#[test]
fn a_control_plane_that_stops_sends_its_data_planes_to_the_other() {
    let fleet = Fleet::new("drained");
    let mut planes = fleet.control_planes();
    let data = [(); 3].map(|()| fleet.data_plane(&planes).start());
    for data in &data {
        eventually("it is connected", || connected_to(data).is_some());
    }
    let at = place(&data[0], &planes);
    planes[at].signal(Signal::TERM);
    planes[at].exit();
    eventually("all are connected to the other", || data.iter().all(|data| is_at(data, &planes[1 - at])));
    for data in &data {
        assert!(!data.log().contains("ERROR"), "none was cut off: {}", data.log());
    }
}

/// The states of the data planes that a control plane knows.
fn states(plane: &Gateway) -> Vec<String> {
    let mut states: Vec<_> =
        members(plane).iter().map(|it| it["state"].as_str().unwrap().to_owned()).collect();
    states.sort();
    states
}

#[test]
fn each_control_plane_counts_the_data_planes_of_all() {
    let (fleet, upstream) = (Fleet::new("counted"), Upstream::answering(HELLO));
    let mut planes = fleet.control_planes();
    let data = [0, 1].map(|number| fleet::data_plane(&fleet.identity, &planes[number]).start());
    for plane in &planes {
        eventually("it shows both", || states(plane) == ["connected", "connected"]);
        let at: Vec<_> = members(plane).iter().map(|it| it["control_plane"].clone()).collect();
        assert_ne!(at[0], at[1]);
    }
    for (number, plane) in planes.iter().enumerate() {
        let name = format!("route-{number}");
        assert_eq!(route(plane, &name, &upstream, "?wait=all,60000"), 200);
        for data in &data {
            assert_eq!(data.get(&format!("/{name}")).status, 200);
        }
        let in_force = plane.admin("/clustering/in-force").json();
        assert_eq!((&in_force["in_force"], &in_force["serving"]), (&true.into(), &2.into()));
        assert_eq!(plane.admin("/metrics").text().matches("\nweir_data_plane_up{").count(), 2);
    }
    let [first, second] = data;
    drop(first);
    eventually("the other hears of it", || states(&planes[1]) == ["connected", "offline"]);
    assert_eq!(route(&planes[1], "late", &upstream, "?wait=all,1"), 202);
    assert_eq!(route(&planes[0], "late", &upstream, "?wait=100%"), 200);
    planes[1].signal(Signal::KILL);
    planes[1].exit();
    // As if it had been silent for long.
    let port = PostgresServer::shared_port();
    PostgresServer::execute(port, "UPDATE counted.weir_control_planes SET seen = seen - 1000");
    eventually("its data plane counts as gone", || states(&planes[0]) == ["offline", "offline"]);
    planes[1] = fleet.control_plane("127.0.0.1:0");
    eventually("one that starts knows them", || states(&planes[1]) == ["offline", "offline"]);
    assert_eq!(second.get("/late").status, 200);
}

#[test]
fn a_control_plane_that_stops_counts_as_gone_at_once() {
    let fleet = Fleet::new("stopped");
    let mut planes = fleet.control_planes();
    let _data = fleet::data_plane(&fleet.identity, &planes[1]).start();
    eventually("both show it", || planes.iter().all(|plane| states(plane) == ["connected"]));
    planes[1].signal(Signal::TERM);
    planes[1].exit();
    eventually("the other has heard of it", || states(&planes[0]) == ["offline"]);
    let left = PostgresServer::execute(
        PostgresServer::shared_port(),
        "SELECT 'left: ' || count(*) FROM stopped.weir_control_planes",
    );
    assert!(left.contains("left: 1"), "its row is gone: {left}");
}

#[test]
fn a_data_plane_is_shown_where_it_speaks() {
    let fleet = Fleet::new("reclaimed");
    let (planes, upstream) = (fleet.control_planes(), Upstream::answering(HELLO));
    let _data = fleet::data_plane(&fleet.identity, &planes[0]).start();
    eventually("both show it", || planes.iter().all(|plane| states(plane) == ["connected"]));
    let shown_at = |plane: &Gateway| members(plane)[0]["control_plane"].clone();
    let at = shown_at(&planes[0]);
    // As if the other one had a connection of it that is dead, and had written last. What the data plane says meanwhile takes it back.
    let port = PostgresServer::shared_port();
    let own = PostgresServer::select(port, "SELECT control_plane FROM reclaimed.weir_data_planes");
    let is_given_away = || {
        let give_away = format!(
            "SET search_path TO reclaimed; \
             UPDATE weir_data_planes SET stamp = stamp + 1000000, control_plane = \
                 (SELECT id FROM weir_control_planes WHERE id <> '{own}') WHERE control_plane = '{own}'; \
             SELECT pg_notify('weir_rows_reclaimed', '')"
        );
        PostgresServer::execute(port, &give_away);
        shown_at(&planes[0]) != at
    };
    eventually("it is shown at the other", is_given_away);
    assert_eq!(route(&planes[0], "said", &upstream, "?wait=all,60000"), 200, "it acknowledges the change");
    assert_eq!(shown_at(&planes[0]), at);
    eventually("the other one knows it, too", || shown_at(&planes[1]) == at);
}

#[test]
fn a_control_plane_alone_knows_its_data_planes_after_a_restart() {
    let (identity, folder) = (shared(), tempfile::tempdir().unwrap());
    let prefix = folder.path().join("control").display().to_string();
    let mut control = control_plane(&identity).set("prefix", &prefix).start();
    let data = fleet::data_plane(&identity, &control).set("cluster_dp_labels", "region:eu").start();
    eventually("it is connected", || states(&control) == ["connected"]);
    let before = members(&control).remove(0);
    drop(data);
    eventually("it is gone", || states(&control) == ["offline"]);
    let id = before["id"].as_str().unwrap();
    // What is known is written within a second: to the file, or to the log beside it.
    eventually("it is written", || {
        ["weir.sqlite", "weir.sqlite-wal"].iter().any(|name| {
            let file = fs::read(Path::new(&prefix).join(name)).unwrap_or_default();
            file.windows(id.len()).any(|bytes| bytes == id.as_bytes())
        })
    });
    control.signal(Signal::KILL);
    control.exit();
    control = control_plane(&identity).set("prefix", &prefix).start();
    assert_eq!(states(&control), ["offline"], "known as soon as it answers");
    let after = members(&control).remove(0);
    for field in ["id", "labels", "config_hash", "revision", "version", "protocol"] {
        assert_eq!(after[field], before[field], "{field}");
    }
}
