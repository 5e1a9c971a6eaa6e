use super::*;
use crate::aggregate::{Aggregate, Latency};
use crate::entities::NONE;
use crate::query;
use crate::record::{Record, Tick};
use crate::testing::record;

const START: u64 = 1_790_000_000_000;

fn store() -> Store {
    Store::new(Arc::default(), Budget::default(), START)
}

/// The sum of an entity over everything that a view has.
fn sum(store: &Store, of: Entity, step: u64) -> Aggregate {
    let view = store.view(0, u64::MAX, step, Some(of));
    let mut sum = Aggregate::default();
    view.slots.iter().filter_map(|slot| slot.get(of)).for_each(|aggregate| sum.merge(&aggregate));
    sum
}

fn kind_sum(store: &Store, kind: Kind, step: u64) -> u64 {
    let view = store.view(0, u64::MAX, step, None);
    view.slots.iter().flat_map(|slot| slot.of_kind(kind)).map(|(_, aggregate)| aggregate.requests()).sum()
}

#[test]
fn every_tier_has_every_request() {
    let mut store = store();
    let (a, b) = (store.add_worker(), store.add_worker());
    let mut sent = 0;
    for tick in 0..40_000u64 {
        let now = START + tick * 200;
        let record = Record { time: Tick::at(now), consumer: tick as u32 % 5, ..record(1 + tick as u32 % 7) };
        if tick % 2 == 0 {
            a.push(&record)
        } else {
            b.push(&record)
        }
        sent += 1;
        if tick % 3 == 0 {
            store.drain(now);
        }
        if tick % 9_999 == 0 {
            for step in [10, 60, 3_600, 86_400] {
                store.refresh(now);
                assert_eq!(sum(&store, Entity::NODE, step).requests(), sent, "at {tick}, step {step}");
            }
        }
    }
    store.refresh(START + 8_000_000);
    for step in [10, 60, 3_600, 86_400] {
        for kind in [Kind::Node, Kind::Route, Kind::Service, Kind::Upstream, Kind::Consumer] {
            assert_eq!(kind_sum(&store, kind, step), sent, "{kind:?} with step {step}");
        }
    }
    let node = sum(&store, Entity::NODE, 60);
    assert_eq!((node.bytes_in, node.bytes_out), (sent * 100, sent * 1_000));
    assert_eq!(node.latency(Latency::Gateway).count(), sent);
    assert_eq!(sum(&store, Entity::new(Kind::Consumer, NONE), 60).requests(), sent / 5);
}

#[test]
fn a_second_has_the_requests_that_ended_in_it() {
    let mut store = store();
    let worker = store.add_worker();
    for (millis, times) in [(990, 3), (1_000, 2), (1_990, 1)] {
        (0..times).for_each(|_| worker.push(&Record { time: Tick::at(START + millis), ..record(1) }));
    }
    store.drain(START + 2_500);
    let view = store.view(START / 1_000, START / 1_000 + 10, 1, Some(Entity::NODE));
    let counts: Vec<_> =
        view.slots.iter().map(|slot| (slot.start, slot.get(Entity::NODE).unwrap().requests())).collect();
    assert_eq!(view.width, 1);
    assert_eq!(counts, [(START / 1_000, 3), (START / 1_000 + 1, 3)]);
}

#[test]
fn each_second_has_what_it_has_added_to_its_ten_seconds() {
    let mut store = store();
    let worker = store.add_worker();
    let route = Entity::new(Kind::Route, 2);
    for second in 0..25 {
        let now = START + second * 1_000;
        let push = |route, times| {
            (0..times).for_each(|_| worker.push(&Record { time: Tick::at(now), ..record(route) }))
        };
        push(1, 1);
        push(2, second % 4);
        store.drain(now + 500);
        if second == 13 {
            store.refresh(now + 600);
        }
    }
    store.drain(START + 26_200);
    let view = store.view(START / 1_000, START / 1_000 + 30, 1, Some(route));
    assert_eq!((view.width, view.slots.len()), (1, 25));
    for (second, slot) in view.slots.iter().enumerate() {
        let requests = |entity| slot.get(entity).map_or(0, |aggregate| aggregate.requests());
        let of_route = second as u64 % 4;
        assert_eq!((requests(Entity::NODE), requests(route)), (1 + of_route, of_route), "second {second}");
        let node = slot.get(Entity::NODE).unwrap();
        assert_eq!(node.latency(Latency::Total).count(), 1 + of_route);
        assert_eq!(node.bytes_in, (1 + of_route) * 100);
    }
}

#[test]
fn requests_are_visible_before_their_second_ends() {
    let mut store = store();
    let worker = store.add_worker();
    for millis in [100, 200, 300] {
        worker.push(&Record { time: Tick::at(START + millis), ..record(1) });
        store.refresh(START + millis);
        assert_eq!(sum(&store, Entity::new(Kind::Route, 1), 1).requests(), millis / 100);
    }
}

#[test]
fn drops_are_counted_once_and_are_in_the_slots() {
    let mut store = store();
    let worker = store.add_worker();
    (0..ring::CAPACITY + 10).for_each(|_| worker.push(&Record { time: Tick::at(START), ..record(1) }));
    drop(worker);
    store.drain(START + 10);
    store.refresh(START + 10_000);
    let view = store.view(0, u64::MAX, 10, None);
    assert_eq!(view.slots.iter().map(|slot| slot.dropped).sum::<u64>(), 10);
    assert_eq!((store.dropped(), store.rings.len()), (10, 0));
}

#[test]
fn a_clock_that_is_set_back_is_followed() {
    let mut store = store();
    let worker = store.add_worker();
    for now in [START, START + 100_000, START + 20_000, START + 200_000] {
        worker.push(&Record { time: Tick::at(now), ..record(1) });
        store.drain(now);
        store.refresh(now + 2_000);
    }
    for step in [10, 60, 86_400] {
        assert_eq!(sum(&store, Entity::NODE, step).requests(), 4);
    }
    let starts: Vec<_> =
        store.view(0, u64::MAX, 10, None).slots.iter().map(|slot| slot.start * 1_000).collect();
    assert_eq!(starts, [START, START + 20_000, START + 100_000, START + 200_000]);
}

/// Second by second this would take minutes.
#[test]
fn a_clock_that_is_set_by_months_is_followed_at_once() {
    const MONTHS: u64 = 300 * 86_400_000;
    let mut store = store();
    let worker = store.add_worker();
    for now in [START, START + MONTHS, START + MONTHS + 1_000] {
        worker.push(&Record { time: Tick::at(now), ..record(1) });
        store.drain(now);
    }
    store.refresh(START + MONTHS + 20_500);
    assert_eq!(store.second, (START + MONTHS) / 1_000 + 20);
    assert_eq!(sum(&store, Entity::NODE, 86_400).requests(), 3);
}

#[test]
fn services_are_the_sum_of_their_routes() {
    let mut store = store();
    let entities = Arc::clone(store.entities());
    let service = entities.intern(Kind::Service, "orders");
    let worker = store.add_worker();
    for n in 0..6_000 {
        let route = entities.intern_route(&format!("route-{n}"), if n % 2 == 0 { service } else { NONE });
        worker.push(&Record { time: Tick::at(START), ..record(route) });
    }
    store.drain(START + 20_000);
    assert_eq!(sum(&store, Entity::new(Kind::Service, service), 10).requests(), 3_000);
    assert_eq!(sum(&store, Entity::new(Kind::Route, crate::entities::OTHERS), 10).requests(), 6_000 - 4_096);
    assert_eq!(sum(&store, Entity::NODE, 10).requests(), 6_000);
}

#[test]
fn a_busy_entity_gets_a_place_from_idle_ones() {
    let mut store = store();
    let worker = store.add_worker();
    let busy = 300;
    for second in 0..130 {
        let now = START + second * 1_000;
        for consumer in (1..=256).chain([busy; 20]) {
            worker.push(&Record { time: Tick::at(now), consumer, ..record(1) });
        }
        store.drain(now + 500);
    }
    store.drain(START + 140_000);
    let counted = sum(&store, Entity::new(Kind::Consumer, busy), 10).requests();
    assert!(counted > 130 * 20 / 2, "{counted} of 2,600 requests");
    assert_eq!(kind_sum(&store, Kind::Consumer, 10), 130 * 276);
}

#[test]
fn totals_count_from_when_they_are_first_asked_for() {
    let mut store = store();
    let worker = store.add_worker();
    let count = |store: &mut Store, requests: u64, after: u64| {
        let now = START + after;
        (0..requests).for_each(|_| worker.push(&Record { time: Tick::at(now), ..record(3) }));
        store.refresh(now);
        let found = store
            .totals(0)
            .routes()
            .map(|(route, counts)| (route.id, counts.latency(Latency::Total).count()));
        found.collect::<Vec<_>>()
    };
    assert_eq!(count(&mut store, 5, 100), []);
    assert_eq!(count(&mut store, 2, 200), [(3, 2)]);
    assert_eq!(count(&mut store, 4, 60_500), [(3, 6)], "what was counted stays");
}

#[test]
fn the_last_totals_have_a_second_that_has_just_begun() {
    let mut store = store();
    let worker = store.add_worker();
    store.totals(START);
    worker.push(&Record { time: Tick::at(START + 1_010), ..record(3) });
    let count = |store: &mut Store| {
        let totals = store.totals(START).routes().map(|(_, counts)| counts.latency(Latency::Total).count());
        totals.sum::<u64>()
    };
    store.refresh(START + 1_020);
    assert_eq!(count(&mut store), 0, "records of the second before may still come");
    store.refresh_last(START + 1_020);
    assert_eq!(count(&mut store), 1);
}

fn on_disk(memory: usize, folder: &std::path::Path, now: u64) -> Store {
    let mut store = Store::new(Arc::default(), Budget { memory, samples: 0 }, now);
    let disk = Disk::open(folder.to_owned(), 64 << 20, store.entities()).unwrap();
    store.attach(disk);
    store
}

#[test]
fn time_in_which_the_node_did_not_run_is_not_known() {
    let folder = tempfile::tempdir().unwrap();
    let mut store = on_disk(64 << 20, folder.path(), START);
    [30_500, 35_000].into_iter().for_each(|now| store.drain(START + now));
    drop(store);
    let mut store = on_disk(64 << 20, folder.path(), START + 100_000);
    store.drain(START + 115_000);
    let start = START / 1_000;
    let frame = query::Frame { from: start - 20, to: start + 130 };
    let view = store.view(frame.from, frame.to, 10, Some(Entity::NODE));
    let points = query::points(&view, Entity::NODE, frame, 10).unwrap();
    let known: Vec<_> = points.known.iter().map(|known| u8::from(*known)).collect();
    // The killed process had noted 30 s of its 35.
    assert_eq!(known, [0, 0, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 1, 1, 0]);
    let by = query::By::Nothing;
    let asked = query::SeriesQuery { metric: query::Metric::Requests, by, of: Entity::NODE, frame, step: 10 };
    let series = query::series(&view, &asked, store.entities()).unwrap();
    assert_eq!(series.columns[0].values[4..6], [Some(0.0), None]);
}

#[test]
fn after_a_restart_a_frame_is_as_fine_as_before() {
    let folder = tempfile::tempdir().unwrap();
    let mut store = on_disk(64 << 20, folder.path(), START);
    let route = store.entities().intern_route("r", 0);
    store.entities().intern(Kind::Upstream, "u");
    store.add_worker().push(&Record { time: Tick::at(START), ..record(route) });
    (0..20).for_each(|step| store.drain(START + 500 + step * 200_000));
    let (from, to) = (START / 1_000 - 600, START / 1_000 + 4_000);
    let view = |store: &Store| {
        let view = store.view(from, to, 10, None);
        (
            view.width,
            view.slots.iter().filter_map(|slot| slot.get(Entity::NODE)).map(|it| it.requests()).sum::<u64>(),
        )
    };
    assert_eq!(view(&store), (10, 1));
    store.finish(START + 4_000_000);
    let store = on_disk(64 << 20, folder.path(), START + 4_010_000);
    assert!(store.tiers().kept().iter().any(|kept| kept.tier.name == "1h" && kept.oldest < Some(from)));
    assert_eq!(view(&store), (10, 1), "the hour in which it began is no reason for another resolution");
}

#[test]
fn a_time_in_which_the_machine_slept_is_not_known() {
    let mut store = store();
    store.drain(START + 20_000);
    store.drain(START + 1_000_000);
    let known = &store.view(0, u64::MAX, 10, None).known;
    let start = START / 1_000;
    assert!(known.overlaps(start + 10, start + 11) && known.overlaps(start + 1_000, start + 1_001));
    assert!(!known.overlaps(start + 21, start + 1_000));
}
