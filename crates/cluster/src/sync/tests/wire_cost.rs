//! What travels for what.
use super::simulation::Simulation;
use super::{consumer, document, route, service};
use weir_model::Change;

/// A fleet of one data plane with so many routes, services and consumers.
fn fleet(count: u128) -> Simulation {
    let entities = (0..count).flat_map(|id| {
        let (id, name) = (id * 0x1234_5678_9abc_def1_0000_0001, format!("orders-{id}"));
        [service(id, &name), route(id, &name, id), consumer(id, &name)]
    });
    let mut simulation = Simulation::new(document(entities), 1);
    simulation.settle();
    simulation.assert_converged();
    reset(&mut simulation);
    simulation
}

fn reset(simulation: &mut Simulation) {
    (simulation.nodes[0].received, simulation.nodes[0].sent) = (0, 0);
}

#[test]
fn a_change_of_one_route_is_at_most_600_bytes() {
    let mut simulation = fleet(300);
    simulation.commit(&[Change::put(route(7_000_000, "invoices", 0))]);
    simulation.settle();
    simulation.assert_converged();
    let received = simulation.nodes[0].received;
    assert!(received <= 500, "{received} bytes, and WebSocket and TLS add some 30");
}

#[test]
fn a_data_plane_that_is_current_exchanges_less_than_a_kibibyte() {
    let mut simulation = fleet(300);
    simulation.restart();
    simulation.settle();
    simulation.assert_converged();
    let bytes = simulation.nodes[0].received + simulation.nodes[0].sent;
    assert!(bytes <= 600, "{bytes} bytes beside the names of plugins");
}

#[test]
fn after_any_absence_only_what_differs_travels() {
    let mut simulation = fleet(1_000);
    simulation.disconnect(0);
    for version in 0..300 {
        simulation.commit(&[Change::put(consumer(5, &format!("version-{version}")))]);
    }
    simulation.restart();
    simulation.settle();
    simulation.assert_converged();
    let (received, sent) = (simulation.nodes[0].received, simulation.nodes[0].sent);
    assert!(received <= 1_500, "{received} bytes received");
    // The buckets of one kind.
    assert!(sent <= 10_000, "{sent} bytes sent");
}
