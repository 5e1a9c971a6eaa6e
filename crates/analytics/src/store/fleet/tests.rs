use super::*;
use crate::disk::Disk;
use crate::model::ModelCall;
use crate::record::{Record, Tick};
use crate::ring::Producer;
use crate::store::Budget;
use crate::testing::record;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

const START: u64 = 1_790_000_000_000;

/// A data plane with a worker that serves one route.
struct DataPlane {
    name: String,
    store: Store,
    worker: Producer,
    reader: FrameReader,
}

impl DataPlane {
    fn start(name: &str, now: u64, folder: Option<&Path>) -> DataPlane {
        let mut store = Store::new(Arc::default(), Budget::default(), now);
        store.hand_in();
        attach(&mut store, folder);
        let worker = store.add_worker();
        DataPlane { name: name.to_owned(), store, worker, reader: FrameReader::default() }
    }

    fn serve(&mut self, now: u64, times: u64) {
        let route = self.store.entities().intern_route("orders", 0);
        let upstream = self.store.entities().intern(Kind::Upstream, "127.0.0.1:80");
        let record = Record { time: Tick::at(now), upstream, ..record(route) };
        (0..times).for_each(|_| self.worker.push(&record));
        self.store.drain(now + 500);
    }

    /// A new connection.
    fn connect(&mut self) {
        self.reader = FrameReader::default();
        self.store.outbox_mut().unwrap().begin();
    }

    /// Hands in everything. The last acknowledgement may be lost.
    fn hand_in(&mut self, to: &mut Store, now: u64, is_acknowledged: bool) {
        self.store.drain(now);
        while let Some(frame) = self.store.next_frame() {
            to.drain(now);
            to.take_frame(&self.name, &mut self.reader, &frame, now).unwrap();
            to.commit();
            if !is_acknowledged {
                return;
            }
            self.store.frame_taken();
        }
    }
}

fn attach(store: &mut Store, folder: Option<&Path>) {
    if let Some(folder) = folder {
        let disk = Disk::open(folder.to_owned(), 256 << 20, store.entities()).unwrap();
        store.attach(disk);
    }
}

fn control_plane(now: u64, folder: Option<&Path>) -> Store {
    let mut store = Store::new(Arc::default(), Budget::default(), now);
    store.collect_frames();
    attach(&mut store, folder);
    store
}

/// The requests of each resolution, which are all the same.
fn requests(store: &Store, of: Entity) -> u64 {
    let sums = [10, 60, 3_600, 86_400].map(|step| {
        let view = store.view(0, u64::MAX, step, Some(of));
        view.slots.iter().filter_map(|slot| slot.get(of)).map(|it| it.requests()).sum::<u64>()
    });
    assert!(sums.iter().all(|sum| *sum == sums[0]), "{sums:?}");
    sums[0]
}

fn node(store: &Store, name: &str) -> Entity {
    Entity::new(Kind::Node, store.entities().find(Kind::Node, name).unwrap())
}

#[test]
fn a_fleet_is_the_sum_of_a_hundred_data_planes_also_late() {
    let mut control = control_plane(START, None);
    let mut planes: Vec<_> =
        (0..100).map(|n| DataPlane::start(&format!("data-plane-{n}"), START, None)).collect();
    for round in 0..60u64 {
        let now = START + round * 10_000;
        for (n, plane) in planes.iter_mut().enumerate() {
            plane.serve(now + 100 * n as u64 % 10_000, n as u64 % 7);
            // A part of them cannot reach the control plane for a time.
            if !(10..50).contains(&round) || n % 5 > 0 {
                plane.hand_in(&mut control, now + 11_000, true);
            }
        }
    }
    let end = START + 700_000;
    planes.iter_mut().for_each(|plane| plane.hand_in(&mut control, end, true));
    control.refresh(end);
    let own = |plane: &DataPlane| requests(&plane.store, Entity::NODE);
    assert_eq!(requests(&control, Entity::NODE), planes.iter().map(own).sum::<u64>());
    for plane in planes.iter().filter(|plane| own(plane) > 0) {
        assert_eq!(requests(&control, node(&control, &plane.name)), own(plane), "{}", plane.name);
        let arrival = control.arrival(&plane.name).unwrap();
        assert_eq!((arrival.pending, arrival.lost, arrival.until), (0, 0, end / 1_000 - 10));
    }
}

#[test]
fn nothing_is_lost_or_counted_twice_over_restarts_and_lost_acknowledgements() {
    let folder = tempfile::tempdir().unwrap();
    let (at_data_plane, at_control_plane) = (folder.path().join("dp"), folder.path().join("cp"));
    let (mut sent, mut now) = (0, START);
    let mut control = control_plane(now, Some(&at_control_plane));
    let mut plane = DataPlane::start("a", now, Some(&at_data_plane));
    for round in 0..90u64 {
        now += 4_000;
        plane.serve(now, round);
        sent += round;
        match round % 5 {
            0 => plane.hand_in(&mut control, now + 900, false),
            1 => plane.hand_in(&mut control, now + 900, true),
            // Killed, after the interval was stored.
            2 => {
                now += 11_000;
                control.refresh(now);
                control = control_plane(now, Some(&at_control_plane));
            }
            3 => {
                plane.store.finish(now + 900);
                plane = DataPlane::start("a", now + 900, Some(&at_data_plane));
            }
            _ => {}
        }
        plane.connect();
    }
    now += 20_000;
    plane.hand_in(&mut control, now, true);
    control.refresh(now);
    assert_eq!(requests(&control, Entity::NODE), sent);
    assert_eq!(requests(&control, node(&control, "a")), sent);
}

#[test]
fn a_node_that_stops_keeps_what_it_served_just_now() {
    let folder = tempfile::tempdir().unwrap();
    let mut plane = DataPlane::start("a", START, Some(folder.path()));
    plane.store.drain(START + 900);
    let route = plane.store.entities().intern_route("orders", 0);
    let upstream = plane.store.entities().intern(Kind::Upstream, "127.0.0.1:80");
    plane.worker.push(&Record { time: Tick::at(START + 1_020), upstream, ..record(route) });
    plane.store.finish(START + 1_040);
    let plane = DataPlane::start("a", START + 1_500, Some(folder.path()));
    assert_eq!(requests(&plane.store, Entity::NODE), 1);
}

#[test]
fn a_data_plane_that_moves_hands_in_each_frame_once() {
    let (mut first, mut second) = (control_plane(START, None), control_plane(START, None));
    let mut plane = DataPlane::start("a", START, None);
    for round in 0..20u64 {
        let now = START + round * 10_000;
        plane.serve(now, 5);
        plane.connect();
        let to = if round % 2 == 0 { &mut first } else { &mut second };
        plane.hand_in(to, now + 12_000, true);
    }
    let sums = [&first, &second].map(|control| requests(control, Entity::NODE));
    assert_eq!(sums, [50, 50]);
}

#[test]
fn a_frame_that_is_refused_costs_itself_alone() {
    let mut control = control_plane(START, None);
    let mut plane = DataPlane::start("a", START, None);
    plane.serve(START, 5);
    plane.store.drain(START + 11_000);
    let mut frame = plane.store.next_frame().unwrap();
    frame.truncate(frame.len() - 1);
    control.drain(START + 11_000);
    control.take_frame("a", &mut plane.reader, &frame, START + 11_000).unwrap_err();
    plane.store.frame_refused();
    plane.serve(START + 12_000, 3);
    plane.hand_in(&mut control, START + 22_000, true);
    assert_eq!(requests(&control, Entity::NODE), 3);
    assert_eq!(control.arrival("a").unwrap().lost, 5);
}

#[test]
fn a_data_plane_without_a_number_is_refused() {
    let mut control = control_plane(START, None);
    for n in 0..crate::entities::MAX_NAMES {
        control.entities().intern(Kind::Node, &n.to_string());
    }
    let mut plane = DataPlane::start("a", START, None);
    plane.serve(START, 5);
    plane.store.drain(START + 11_000);
    let frame = plane.store.next_frame().unwrap();
    let taken = control.take_frame("a", &mut plane.reader, &frame, START + 11_000);
    assert_eq!(taken, Err(FrameError::NoNumber));
}

/// The slots that came late are on the disk behind newer ones, and are read first at a restart.
#[test]
fn a_wide_query_has_what_is_on_the_disk_between_slots_in_memory() {
    let folder = tempfile::tempdir().unwrap();
    let mut control = control_plane(START, Some(folder.path()));
    let mut planes = ["on-time", "late"].map(|name| DataPlane::start(name, START, None));
    let rounds = 300u64;
    for round in 0..rounds {
        let now = START + round * 10_000;
        planes.iter_mut().for_each(|plane| plane.serve(now, 2));
        planes[0].hand_in(&mut control, now + 11_000, true);
    }
    let end = START + rounds * 10_000 + 20_000;
    planes[1].hand_in(&mut control, end, true);
    let expected = 4 * rounds;
    assert_eq!(requests(&control, Entity::NODE), expected);
    control.finish(end);
    for memory in [40_000, 80_000, 160_000, 64 << 20] {
        let mut store = Store::new(Arc::default(), Budget { memory, samples: 0 }, end);
        store.collect_frames();
        attach(&mut store, Some(folder.path()));
        assert_eq!(requests(&store, Entity::NODE), expected, "with {memory} bytes");
    }
}

#[test]
fn a_data_plane_fills_no_more_than_its_part_of_the_names() {
    let mut control = Store::new(Arc::default(), Budget { memory: 1 << 20, samples: 0 }, START);
    control.collect_frames();
    let mut plane = DataPlane::start("a", START, None);
    let entities = plane.store.entities().clone();
    for round in 0..4 {
        let now = START + round * 10_000;
        for n in 0..2_000 {
            let route = entities.intern_route(&format!("{:0>200}", round * 2_000 + n), 0);
            plane.worker.push(&Record { time: Tick::at(now), upstream: 0, ..record(route) });
        }
        plane.store.drain(now + 500);
        plane.hand_in(&mut control, now + 11_000, true);
    }
    control.refresh(START + 60_000);
    assert_eq!(requests(&control, Entity::NODE), 8_000, "all are counted");
    let bytes = control.entities().heap_bytes();
    assert!(((1 << 18)..=(1 << 19)).contains(&bytes), "{bytes} bytes of names");
}

#[test]
fn a_frame_that_is_early_is_taken_once_the_clock_has_followed() {
    let (mut control, mut plane) = (control_plane(START, None), DataPlane::start("a", START + 100_000, None));
    plane.serve(START + 100_000, 5);
    plane.store.drain(START + 111_000);
    let frame = plane.store.next_frame().unwrap();
    let early = control.take_frame("a", &mut plane.reader, &frame, START + 11_000).unwrap_err();
    assert!(early.passes() && control.entities().find(Kind::Route, "orders").is_none(), "{early}");
    plane.store.frame_postponed();
    assert_eq!(plane.store.next_frame(), None);
    plane.hand_in(&mut control, START + 121_000, true);
    assert_eq!(requests(&control, Entity::NODE), 5);
    assert_eq!(control.arrival("a").map(|it| it.lost), Some(0));
}

#[test]
fn calls_of_models_are_handed_in() {
    let mut control = control_plane(START, None);
    // Whatever clients have asked of other nodes, there is room for the models of this one.
    for number in 0..2_000 {
        control.entities().intern(Kind::Model, &number.to_string());
    }
    let mut plane = DataPlane::start("a", START, None);
    plane.serve(START, 1);
    let call = ModelCall {
        model: "openai/m",
        is_configured: true,
        status: 200,
        tokens: [3, 4],
        latency: Duration::from_secs(1),
        first_token: None,
        tokens_per_second: Some(4.0),
    };
    (0..3).for_each(|_| plane.store.record_model(&call));
    plane.hand_in(&mut control, START + 11_000, true);
    control.refresh(START + 12_000);
    let model = Entity::new(Kind::Model, control.entities().find(Kind::Model, "openai/m").unwrap());
    assert_eq!((requests(&control, model), requests(&control, Entity::NODE)), (3, 1));
}
