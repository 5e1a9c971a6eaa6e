//! Whatever happens, every data plane ends with what the control plane has.
use super::simulation::Simulation;
use super::{consumer, document, route, service};
use crate::sync::inventory::Inventory;
use crate::sync::{Cohort, Event, Next, Replacement};
use proptest::prelude::*;
use std::sync::Arc;
use weir_model::entity::{Entity, EntityKind};
use weir_model::{Change, Uuid};

/// Something that happens to the fleet.
#[derive(Debug, Clone)]
enum Happening {
    Commit(Vec<Change>),
    Replace(Vec<Change>),
    Connect(usize),
    Disconnect(usize),
    Up(usize),
    Down(usize),
    Restart,
}

const NODES: usize = 3;

fn any_entity() -> impl Strategy<Value = Entity> {
    (0..3, 0..12_u128, 0..4).prop_map(|(kind, id, version)| match kind {
        0 => service(id, &format!("service-{id}-{version}")),
        1 => route(id, &format!("route-{id}-{version}"), id),
        _ => consumer(id, &format!("consumer-{id}-{version}")),
    })
}

fn any_change() -> impl Strategy<Value = Change> {
    prop_oneof![
        3 => any_entity().prop_map(Change::put),
        1 => any_entity().prop_map(|entity| Change::delete(entity.kind(), entity.id())),
    ]
}

fn any_changes() -> impl Strategy<Value = Vec<Change>> {
    prop::collection::vec(any_change(), 1..4)
}

fn any_happening() -> impl Strategy<Value = Happening> {
    prop_oneof![
        4 => any_changes().prop_map(Happening::Commit),
        1 => any_changes().prop_map(Happening::Replace),
        2 => (0..NODES).prop_map(Happening::Connect),
        1 => (0..NODES).prop_map(Happening::Disconnect),
        6 => (0..NODES).prop_map(Happening::Up),
        6 => (0..NODES).prop_map(Happening::Down),
        1 => Just(Happening::Restart),
    ]
}

fn happen(simulation: &mut Simulation, happening: Happening) {
    match happening {
        Happening::Commit(changes) => simulation.commit(&changes),
        Happening::Replace(changes) => simulation.replace(&changes),
        Happening::Connect(node) => simulation.connect(node),
        Happening::Disconnect(node) => simulation.disconnect(node),
        Happening::Up(node) => drop(simulation.deliver_up(node)),
        Happening::Down(node) => drop(simulation.deliver_down(node)),
        Happening::Restart => simulation.restart(),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn any_course_of_events_ends_equal(
        entities in prop::collection::vec(any_entity(), 0..20),
        happenings in prop::collection::vec(any_happening(), 0..120),
    ) {
        let changes: Vec<_> = entities.into_iter().map(Change::put).collect();
        let mut simulation = Simulation::new(document([]), NODES);
        simulation.commit(&changes);
        happenings.into_iter().for_each(|happening| happen(&mut simulation, happening));
        simulation.settle();
        simulation.assert_converged();
    }

    #[test]
    fn the_inventory_of_a_document_is_that_of_its_changes(changes in any_changes(), more in any_changes()) {
        let mut simulation = Simulation::new(document([]), 0);
        simulation.commit(&changes);
        let before = simulation.cohort.inventory().clone();
        simulation.commit(&more);
        let after = simulation.cohort.inventory();
        prop_assert_eq!(after, &Inventory::of(simulation.cohort.document()));
        let differing = before.differences(after);
        prop_assert!(differing.iter().all(|key| before.get(*key) != after.get(*key)));
        let keys = before.keys().chain(after.keys());
        let all = keys.filter(|key| before.get(*key) != after.get(*key)).collect::<std::collections::BTreeSet<_>>();
        prop_assert_eq!(all.len(), differing.len());
    }
}

#[test]
fn a_data_plane_that_refuses_keeps_what_it_has_until_the_next_change() {
    let mut simulation = Simulation::new(document([service(1, "one")]), 1);
    simulation.settle();
    let before = simulation.nodes[0].document.clone();
    simulation.nodes[0].refuses = true;
    simulation.commit(&[Change::put(service(2, "two"))]);
    simulation.settle();
    assert_eq!(simulation.nodes[0].document, before);
    let refused = simulation.events.iter().filter(|event| matches!(event, Event::Refused(_))).count();
    assert_eq!(refused, 1, "the same content is not sent twice");

    simulation.nodes[0].refuses = false;
    simulation.commit(&[Change::delete(EntityKind::Services, Uuid::from_u128(1))]);
    simulation.settle();
    simulation.assert_converged();
}

#[test]
fn changes_that_are_committed_while_one_is_outstanding_are_merged() {
    let mut simulation = Simulation::new(document([service(1, "one")]), 1);
    simulation.settle();
    simulation.events.clear();
    for version in 0..50 {
        simulation.commit(&[Change::put(service(1, &format!("version-{version}")))]);
    }
    simulation.settle();
    simulation.assert_converged();
    assert_eq!(simulation.events.len(), 2, "the first one, and all others together");
}

#[test]
fn a_full_sync_of_many_chunks_waits_for_credit() {
    let mut simulation = Simulation::new(document([]), 2);
    // Names that deflate cannot shorten, so that there are more chunks than credit.
    let name =
        |id: u128| (0..60).map(|_| fastrand::Rng::with_seed(id as u64).alphanumeric()).collect::<String>();
    let random = |id: u128| {
        let mut random = fastrand::Rng::with_seed(id as u64);
        name(id) + &(0..400).map(|_| random.alphanumeric()).collect::<String>()
    };
    let changes: Vec<_> = (0..6_000).map(|id| Change::put(consumer(id, &random(id)))).collect();
    simulation.commit(&changes);
    simulation.settle();
    simulation.assert_converged();
    let Next::Transfer(whole) = simulation.cohort.whole() else { panic!("it was not kept") };
    assert!(whole.messages.len() > 2 * crate::sync::CREDIT as usize);
}

#[test]
fn a_sequence_that_goes_down_begins_another_history() {
    let with = |names: &[&str]| {
        let consumers = names.iter().enumerate().map(|(id, name)| consumer(id as u128, name));
        Arc::new(document(consumers))
    };
    let mut cohort = Cohort::new(Arc::from([]), 1, 5, with(&["ann"]));
    let five = cohort.identity();
    cohort.replace(6, Replacement::new(with(&["ann", "bob"])));
    let six = cohort.identity();
    assert_eq!(cohort.changed_after(five).map(|keys| keys.len()), Some(1));
    cohort.replace(4, Replacement::new(with(&["cid"])));
    assert_eq!((cohort.changed_after(five), cohort.changed_after(six)), (None, None));
    assert!(matches!(cohort.next(six.digest), Next::Draft(draft) if draft.entities() == 2));
    let four = cohort.identity();
    cohort.replace(6, Replacement::new(with(&["cid", "dan"])));
    assert_eq!(cohort.changed_after(six), None, "this number had other content");
    assert_eq!(cohort.changed_after(four).map(|keys| keys.len()), Some(1));
    cohort.replace(6, Replacement::new(with(&["eve"])));
    assert_eq!(cohort.changed_after(four), None);
}
