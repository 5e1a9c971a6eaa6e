//! The memory for bodies by itself.

use super::*;
use proptest::prelude::*;
use std::thread;

const KIB: usize = 1024;

fn workers(limit: usize, workers: usize) -> (Arc<BodyMemory>, Vec<Rc<WorkerBodyMemory>>) {
    let memory = Arc::new(BodyMemory::new(limit as u64, workers));
    let workers = (0..workers).map(|worker| Rc::new(WorkerBodyMemory::new(memory.clone(), worker))).collect();
    (memory, workers)
}

fn body(worker: &Rc<WorkerBodyMemory>) -> BufferedBody {
    BufferedBody::within(BodyReservation::new(worker.clone(), false))
}

#[test]
fn what_is_allocated_is_what_is_taken() {
    let (memory, workers) = workers(256 * KIB, 1);
    let mut body = body(&workers[0]);
    for _ in 0..100 {
        body.push(&[7; 1000], 100_000).unwrap();
        assert_eq!(memory.usage().bytes, body.bytes.capacity() as u64);
    }
    assert_eq!(body.bytes.capacity(), 100_000, "no more than the length that is known");
    body.replace(|_| Vec::with_capacity(10));
    assert_eq!(memory.usage().bytes, 10);
    body.replace(|_| Vec::with_capacity(300 * KIB));
    assert_eq!(memory.usage().bytes, 300 * KIB as u64, "what a plugin has made is there, whatever the bound");
    drop(body);
    assert_eq!(memory.usage().bytes, 0);
}

#[test]
fn bytes_that_a_plugin_holds_stay_reserved() {
    let (memory, workers) = workers(64 * KIB, 1);
    let mut body = body(&workers[0]);
    body.push(&[0; 20 * KIB], 20 * KIB).unwrap();
    let held = body.take();
    assert_eq!((body.len(), memory.usage().bytes), (0, 20 * KIB as u64));
    body.replace(|_| held[..KIB].to_vec());
    assert_eq!(memory.usage().bytes, KIB as u64);
}

#[test]
fn what_does_not_fit_is_not_added() {
    let (memory, workers) = workers(64 * KIB, 2);
    let (mut first, mut second) = (body(&workers[0]), body(&workers[1]));
    first.push(&[0; 50 * KIB], 50 * KIB).unwrap();
    assert!(second.push(&[0; 20 * KIB], 20 * KIB).is_err());
    assert!(second.is_empty());
    assert_eq!((memory.usage().bytes, memory.usage().rejected), (50 * KIB as u64, 1));
    second.push(&[0; 10 * KIB], 10 * KIB).unwrap();
    drop(first);
    body(&workers[1]).push(&[0; 40 * KIB], 40 * KIB).unwrap();
}

#[test]
fn what_can_be_done_without_leaves_half_to_others() {
    let (memory, workers) = workers(64 * KIB, 1);
    let mut copy = BufferedBody::within(BodyReservation::new(workers[0].clone(), true));
    copy.push(&[0; 30 * KIB], 64 * KIB).unwrap();
    assert!(copy.push(&[0; 30 * KIB], 64 * KIB).is_err());
    body(&workers[0]).push(&[0; 30 * KIB], 30 * KIB).unwrap();
    assert_eq!((memory.usage().skipped, memory.usage().rejected), (1, 0));
}

#[test]
fn a_shortage_is_told_once_until_it_is_over() {
    let (memory, workers) = workers(64 * KIB, 1);
    let mut large = body(&workers[0]);
    large.push(&[0; 60 * KIB], 60 * KIB).unwrap();
    assert!(!memory.is_exhausted.load(Relaxed));
    assert!(body(&workers[0]).push(&[0; 20 * KIB], 20 * KIB).is_err());
    assert!(memory.is_exhausted.load(Relaxed));
    drop(large);
    assert!(!memory.is_exhausted.load(Relaxed));
}

#[test]
fn without_a_bound_there_is_always_room() {
    let (memory, workers) = workers(0, 1);
    let mut body = body(&workers[0]);
    body.push(&[0; 4096 * KIB], 0).unwrap();
    assert_eq!((memory.usage().bytes, memory.usage().limit), (4096 * KIB as u64, None));
}

/// What happens to one of some bodies.
#[derive(Debug, Clone)]
enum Step {
    Push(usize, usize),
    Replace(usize, usize),
    End(usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => (0..8usize, 1..20 * KIB).prop_map(|(body, bytes)| Step::Push(body, bytes)),
        1 => (0..8usize, 0..20 * KIB).prop_map(|(body, bytes)| Step::Replace(body, bytes)),
        2 => (0..8usize).prop_map(Step::End),
    ];
    proptest::collection::vec(step, 1..200)
}

proptest! {
    #[test]
    fn the_sum_is_that_of_all_bodies_and_in_the_end_nothing(steps in steps()) {
        let (memory, workers) = workers(128 * KIB, 3);
        let mut bodies: Vec<BufferedBody> = (0..8).map(|at| body(&workers[at % 3])).collect();
        for step in steps {
            match step {
                Step::Push(at, bytes) => {
                    // A body that was replaced is as long as it is, and may have taken more than there is.
                    let (before, room) = (bodies[at].len(), memory.reserved.load(Relaxed) <= 128 * KIB);
                    let pushed = bodies[at].push(&vec![0; bytes], usize::MAX).is_ok();
                    prop_assert_eq!(bodies[at].len(), if pushed { before + bytes } else { before });
                    prop_assert!(!room || memory.usage().bytes as usize <= 128 * KIB, "never beyond the bound");
                }
                Step::Replace(at, bytes) => bodies[at].replace(|_| Vec::with_capacity(bytes)),
                Step::End(at) => bodies[at] = body(&workers[at % 3]),
            }
            let sum: usize = bodies.iter().map(|body| body.bytes.capacity()).sum();
            prop_assert_eq!(memory.usage().bytes, sum as u64);
        }
        drop(bodies);
        prop_assert_eq!(memory.usage().bytes, 0);
        let kept = memory.reserved.load(Relaxed);
        prop_assert!(kept <= 3 * 2 * memory.piece, "{} bytes are kept back", kept);
    }
}

#[test]
fn workers_at_once_never_hold_more_than_all() {
    let memory = Arc::new(BodyMemory::new(64 * KIB as u64, 4));
    thread::scope(|scope| {
        for worker in 0..4 {
            let memory = memory.clone();
            scope.spawn(move || {
                let worker = Rc::new(WorkerBodyMemory::new(memory.clone(), worker));
                let mut bodies: Vec<BufferedBody> = (0..4).map(|_| body(&worker)).collect();
                for round in 0..2_000 {
                    let at = round % 4;
                    if bodies[at].push(&[0; 1500], usize::MAX).is_err() || round % 7 == 0 {
                        bodies[at] = body(&worker);
                    }
                    assert!(memory.reserved.load(Relaxed) <= 64 * KIB);
                }
            });
        }
    });
    assert_eq!(memory.usage().bytes, 0);
}

#[test]
fn who_is_slow_is_waited_for_less_while_memory_is_scarce() {
    let (_, workers) = workers(256 * KIB, 2);
    let (now, second) = (Instant::now(), Duration::from_secs(1));
    let mut slow = body(&workers[0]);
    slow.push(&[0; 64 * KIB], 64 * KIB).unwrap();
    let due = || slow.due(now, second, 64 * KIB).unwrap() - now;
    assert!(due() > 100 * second, "{:?}", due());
    let mut other = body(&workers[1]);
    other.push(&[0; 160 * KIB], 160 * KIB).unwrap();
    assert_eq!(due(), 5 * second);
    drop(other);
    assert!(due() > 100 * second, "{:?}", due());
}

#[test]
fn a_body_that_never_fits_is_no_shortage() {
    let (memory, workers) = workers(64 * KIB, 1);
    assert!(body(&workers[0]).push(&[0; 65 * KIB], 65 * KIB).is_err());
    assert!(memory.is_too_small.load(Relaxed) && !memory.is_exhausted.load(Relaxed));
    assert_eq!(memory.usage().rejected, 1);
}
