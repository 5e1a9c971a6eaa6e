//! A control plane takes any frames of a data plane without panicking, and answers questions afterwards. What it has taken
//! counts once.
#![no_main]
use libfuzzer_sys::fuzz_target;
use std::sync::Arc;
use weir_analytics::entities::{Entity, Kind, OTHERS};
use weir_analytics::frame::FrameReader;
use weir_analytics::query::{Frame, Metric, TopQuery, top};
use weir_analytics::store::{Budget, Store};

/// In milliseconds since 1970.
const NOW: u64 = 1_790_000_000_000;

/// The frames in the input: each has its length before it.
fn frames(mut data: &[u8]) -> Vec<&[u8]> {
    let mut frames = Vec::new();
    while let Some((length, rest)) = data.split_first_chunk::<2>() {
        let (frame, rest) = rest.split_at(usize::from(u16::from_be_bytes(*length)).min(rest.len()));
        frames.push(frame);
        data = rest;
    }
    frames
}

fn requests(store: &Store) -> u64 {
    let view = store.view(0, NOW, 10, Some(Entity::NODE));
    let nodes = view.slots.iter().filter_map(|slot| slot.get(Entity::NODE));
    nodes.fold(0, |sum, node| sum.saturating_add(node.requests()))
}

/// The first rows of a table.
fn rows(store: &Store, by: Kind, within: Entity) -> Vec<Entity> {
    let frame = Frame { from: 0, to: NOW };
    let query = TopQuery { by, within, of: Metric::Requests, frame, limit: 10 };
    let top = top(&store.view(0, NOW, 60, None), &query, store.entities()).unwrap();
    top.rows.into_iter().map(|row| row.entity).collect()
}

fuzz_target!(|data: &[u8]| {
    let mut store = Store::new(Arc::default(), Budget::default(), NOW);
    store.collect_frames();
    let mut before = None;
    for _ in 0..2 {
        let mut reader = FrameReader::default();
        for frame in frames(data) {
            let _ = store.take_frame("data-plane", &mut reader, frame, NOW);
        }
        store.drain(NOW + 120_000);
        store.commit();
        let sum = requests(&store);
        assert_eq!(*before.get_or_insert(sum), sum);
    }
    for kind in [Kind::Node, Kind::Route, Kind::Consumer] {
        rows(&store, kind, Entity::NODE);
    }
    for route in rows(&store, Kind::Route, Entity::NODE).into_iter().filter(|route| route.id != OTHERS) {
        rows(&store, Kind::Consumer, route);
    }
});
