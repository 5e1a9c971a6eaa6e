use super::*;

fn tags(tags: &[&str]) -> Option<Vec<String>> {
    Some(tags.iter().map(|tag| (*tag).to_owned()).collect())
}

fn limit(written: &[&str]) -> Arc<UpstreamLimit> {
    UpstreamLimits::default().of("some", LimitPolicy::of(&tags(written)).unwrap())
}

#[test]
fn tags_say_what_is_limited() {
    assert_eq!(LimitPolicy::of(&tags(&["weir-max-waiting:5", "team"])), None);
    let policy = LimitPolicy::of(&tags(&["weir-max-requests:9", "weir-target-max-requests:4"])).unwrap();
    assert_eq!((policy.max_requests, policy.target_max_requests, policy.adaptive), (9, Some(4), false));
    let of_one = policy.of_one_target();
    assert_eq!((of_one.max_requests, of_one.target_max_requests), (4, None));
}

#[test]
fn of_k_requests_at_once_exactly_as_many_pass_as_there_is_room_for() {
    let limit = limit(&["weir-max-requests:100"]);
    let permits = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4)
            .map(|_| {
                scope
                    .spawn(|| (0..200).filter_map(|_| limit.acquire(|| Priority::Normal)).collect::<Vec<_>>())
            })
            .collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
    });
    assert_eq!(permits.len(), 100);
    drop(permits);
    assert_eq!(limit.state.in_flight.load(Relaxed), 0);
    assert!(limit.acquire(|| Priority::Normal).is_some());
}

#[test]
fn priorities_are_shed_in_their_order() {
    let limit = limit(&["weir-max-requests:10"]);
    let mut held = Vec::new();
    let mut admitted = |priority: Priority| {
        let before = held.len();
        held.extend(std::iter::from_fn(|| limit.acquire(|| priority)));
        held.len() - before
    };
    let counts =
        [Priority::Low, Priority::Normal, Priority::Low, Priority::High, Priority::Normal].map(&mut admitted);
    assert_eq!(counts, [8, 2, 0, 2, 0]);
}

#[test]
fn the_waiting_room_is_bounded_and_freed() {
    let limit = limit(&["weir-max-requests:1", "weir-max-waiting:2"]);
    let places = [limit.queue(), limit.queue(), limit.queue()];
    assert_eq!(places.each_ref().map(Option::is_some), [true, true, false]);
    assert!(limit.has_queue());
    drop(places);
    assert!(!limit.has_queue() && limit.queue().is_some());
}

#[tokio::test]
async fn who_waits_is_woken_by_a_request_that_ends() {
    let limit = limit(&["weir-max-requests:1", "weir-max-waiting:1"]);
    let first = limit.acquire(|| Priority::Normal).unwrap();
    let place = limit.queue().unwrap();
    let mut freed = std::pin::pin!(place.freed());
    assert!(!freed.as_mut().enable() && limit.acquire(|| Priority::Normal).is_none());
    drop(first);
    freed.await;
    assert!(limit.acquire(|| Priority::Normal).is_some());
}

#[test]
fn counts_outlive_a_change_of_the_limits() {
    let limits = UpstreamLimits::default();
    let first = limits.of("some", LimitPolicy::of(&tags(&["weir-max-requests:1"])).unwrap());
    let permit = first.acquire(|| Priority::Normal);
    first.shed(ShedReason::Upstream);
    let second = limits.of("some", LimitPolicy::of(&tags(&["weir-max-requests:2"])).unwrap());
    let another = second.acquire(|| Priority::Normal);
    assert!(another.is_some() && second.acquire(|| Priority::Normal).is_none());
    drop(another);
    let counts = limits.counts();
    assert_eq!((counts.len(), counts[0].limit, counts[0].in_flight), (1, Some(2), 1));
    assert_eq!(counts[0].shed[0], ("upstream", 1));
    drop((permit, first, second));
    limits.forget_unused();
    assert!(limits.counts().is_empty());
}

#[test]
fn limits_that_are_refused_or_only_checked_leave_those_in_use_alone() {
    let limits = UpstreamLimits::default();
    let policy = |tag: &str| LimitPolicy::of(&tags(&[tag])).unwrap();
    let used = limits.of("some", policy("weir-max-requests:1"));
    let permit = used.acquire(|| Priority::Normal);
    drop(limits.of("some", policy("weir-max-requests:7")));
    let counts = limits.counts();
    assert_eq!((counts.len(), counts[0].limit, counts[0].in_flight), (1, Some(1), 1));
    let next = limits.of("some", policy("weir-max-requests:1"));
    assert!(next.acquire(|| Priority::Normal).is_none(), "the one in flight counts");
    drop(permit);
    assert!(next.acquire(|| Priority::Normal).is_some());
}
