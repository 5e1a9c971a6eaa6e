//! Runs the models: each test tries every order of what its threads do, so that a failure repeats itself.

use weir_interleavings::models;

#[test]
fn node_wide_counters_admit_exactly_what_is_left() {
    models::node_wide_counters_admit_exactly_what_is_left();
}

#[test]
fn health_changes_once() {
    models::health_changes_once();
}

#[test]
fn no_more_targets_are_ejected_than_may_be() {
    models::no_more_targets_are_ejected_than_may_be();
}

#[test]
fn retries_stay_within_the_budget() {
    models::retries_stay_within_the_budget();
}

#[test]
fn requests_that_wait_are_woken() {
    models::requests_that_wait_are_woken();
}

#[test]
fn permits_that_are_given_back_keep_none_waiting() {
    models::permits_that_are_given_back_keep_none_waiting();
}

#[test]
fn no_more_requests_are_in_flight_than_allowed() {
    models::no_more_requests_are_in_flight_than_allowed();
}

#[test]
fn records_are_whole_and_in_order() {
    models::records_are_whole_and_in_order();
}

#[test]
fn workers_free_no_version() {
    models::workers_free_no_version();
}
