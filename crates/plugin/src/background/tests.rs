use super::*;
use std::sync::Arc;
use std::sync::mpsc;
use std::thread;
use weir_model::schema::Record;

const TIMEOUT: Duration = Duration::from_secs(20);

fn config(json: serde_json::Value) -> QueueConfig {
    QueueConfig::from_value(&json).unwrap()
}

fn sender(background: &Arc<Background>) -> Sender {
    Sender {
        name: "q".into(),
        background: background.clone(),
        dropped: Arc::default(),
        untold: Mutex::default(),
    }
}

/// A queue whose deliveries a test controls: it sees each batch, and decides its result.
struct Scripted {
    queue: Queue<u32>,
    delivered: mpsc::Receiver<Vec<u32>>,
    outcomes: mpsc::Sender<Result<(), String>>,
}

fn scripted(background: &Arc<Background>, json: serde_json::Value) -> Scripted {
    let (batches, delivered) = mpsc::channel();
    let (outcomes, outcome) = mpsc::channel();
    let outcome = Arc::new(Mutex::new(outcome));
    let deliver = move |batch: Arc<[u32]>| {
        batches.send(batch.to_vec()).unwrap();
        let outcome = outcome.clone();
        async move {
            let wait = move || outcome.lock().unwrap().recv().unwrap_or(Ok(()));
            tokio::task::spawn_blocking(wait).await.unwrap()
        }
    };
    let queue = Queue::new(sender(background), config(json), deliver);
    Scripted { queue, delivered, outcomes }
}

impl Scripted {
    fn batch(&self) -> Vec<u32> {
        self.delivered.recv_timeout(TIMEOUT).unwrap()
    }
}

#[test]
fn a_full_queue_drops_its_oldest_entries_and_counts_them() {
    let background = Arc::new(Background::default());
    let it = scripted(&background, serde_json::json!({ "max_entries": 3 }));
    it.queue.push(0, 1);
    assert_eq!(it.batch(), [0]);
    (1..=5).for_each(|entry| it.queue.push(entry, 1));
    assert_eq!(it.queue.dropped(), 2);
    for expected in [3, 4, 5] {
        it.outcomes.send(Ok(())).unwrap();
        assert_eq!(it.batch(), [expected]);
    }
    it.outcomes.send(Ok(())).unwrap();
    assert!(background.finish(TIMEOUT));
}

#[test]
fn work_that_blocks_takes_no_thread_of_the_runtime_that_asks() {
    let background = Arc::new(Background::default());
    let name = || thread::current().name().map(str::to_owned);
    let runtime = Builder::new_current_thread().thread_name("worker").build().unwrap();
    let done = runtime.block_on(background.run_blocking(name)).unwrap();
    assert_eq!(done.as_deref(), Some("weir-blocking"));
    let failed = runtime.block_on(background.run_blocking(|| -> u8 { panic!("for the test") }));
    assert_eq!(failed.unwrap_err().to_string(), "task panicked");
}

#[test]
fn bytes_are_bounded_too() {
    let background = Arc::new(Background::default());
    let it = scripted(&background, serde_json::json!({ "max_bytes": 10 }));
    it.queue.push(0, 1);
    assert_eq!(it.batch(), [0]);
    it.queue.push(1, 11);
    assert_eq!(it.queue.dropped(), 1, "it would never fit");
    [(2, 6), (3, 4), (4, 5)].into_iter().for_each(|(entry, bytes)| it.queue.push(entry, bytes));
    assert_eq!(it.queue.dropped(), 2);
    for expected in [3, 4] {
        it.outcomes.send(Ok(())).unwrap();
        assert_eq!(it.batch(), [expected]);
    }
}

#[test]
fn batches_in_flight_take_room_too() {
    let background = Arc::new(Background::default());
    let it = scripted(&background, serde_json::json!({ "max_bytes": 10, "concurrency_limit": -1 }));
    it.queue.push(0, 6);
    assert_eq!(it.batch(), [0]);
    it.queue.push(1, 5);
    assert_eq!(it.queue.dropped(), 1, "there is room for 4");
    it.queue.push(2, 4);
    assert_eq!(it.batch(), [2]);
    (0..2).for_each(|_| it.outcomes.send(Ok(())).unwrap());
    assert!(background.finish(TIMEOUT));
    it.queue.push(3, 10);
    assert_eq!(it.batch(), [3]);
    it.outcomes.send(Ok(())).unwrap();
    assert_eq!(it.queue.dropped(), 1);
}

#[test]
fn bytes_are_bounded_where_nothing_is_said_of_them() {
    let background = Arc::new(Background::default());
    let it = scripted(&background, serde_json::json!({}));
    it.queue.push(0, 1);
    assert_eq!(it.batch(), [0]);
    (1..=100).for_each(|entry| it.queue.push(entry, 1024 * 1024));
    assert_eq!(it.queue.dropped(), 100 - 63);
}

#[test]
fn no_number_of_tries_is_too_many() {
    let background = Arc::new(Background::default());
    let it = scripted(&background, serde_json::json!({ "max_retry_delay": 0.001 }));
    it.queue.push(7, 1);
    for outcome in (0..200).map(|_| Err("no".to_owned())).chain([Ok(())]) {
        assert_eq!(it.batch(), [7]);
        it.outcomes.send(outcome).unwrap();
    }
    assert!(background.finish(TIMEOUT));
    assert_eq!(it.queue.dropped(), 0);
}

#[test]
fn a_batch_is_tried_again_and_in_the_end_dropped() {
    let background = Arc::new(Background::default());
    let it = scripted(&background, serde_json::json!({ "initial_retry_delay": 0.001 }));
    it.queue.push(7, 1);
    for outcome in [Err("no".to_owned()), Err("no".to_owned()), Ok(())] {
        assert_eq!(it.batch(), [7]);
        it.outcomes.send(outcome).unwrap();
    }
    assert!(background.finish(TIMEOUT));
    assert_eq!(it.queue.dropped(), 0);
    let once = scripted(&background, serde_json::json!({ "max_retry_time": -1 }));
    once.queue.push(8, 1);
    assert_eq!(once.batch(), [8]);
    once.outcomes.send(Err("no".to_owned())).unwrap();
    assert!(background.finish(TIMEOUT));
    assert_eq!(once.queue.dropped(), 1);
    assert!(once.delivered.try_recv().is_err());
}

#[test]
fn what_will_never_be_delivered_is_not_tried_again() {
    let background = Arc::new(Background::default());
    let tries = Arc::new(std::sync::atomic::AtomicU32::new(0));
    let counted = tries.clone();
    let queue = Queue::new(sender(&background), config(serde_json::json!({})), move |_: Arc<[u32]>| {
        counted.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        async { Err::<(), _>(Failed::Forever("no".to_owned())) }
    });
    queue.push(1, 1);
    assert!(background.finish(TIMEOUT));
    assert_eq!((queue.dropped(), tries.load(std::sync::atomic::Ordering::Relaxed)), (1, 1));
}

#[test]
fn entries_are_delivered_together_and_after_the_queue_is_gone() {
    let background = Arc::new(Background::default());
    let it = scripted(&background, serde_json::json!({ "max_batch_size": 3, "max_coalescing_delay": 3600 }));
    (0..3).for_each(|entry| it.queue.push(entry, 1));
    assert_eq!(it.batch(), [0, 1, 2]);
    let Scripted { queue, delivered, outcomes } = it;
    (3..6).for_each(|entry| queue.push(entry, 1));
    drop(queue);
    outcomes.send(Ok(())).unwrap();
    assert_eq!(delivered.recv_timeout(TIMEOUT).unwrap(), [3, 4, 5]);
}

#[test]
fn what_is_held_back_is_delivered_at_once_when_the_node_is_about_to_end() {
    let background = Arc::new(Background::default());
    let hour = serde_json::json!({
        "max_batch_size": 10, "max_coalescing_delay": 3600, "initial_retry_delay": 3600, "max_retry_delay": 3600,
        "max_retry_time": 7200,
    });
    let it = scripted(&background, hour);
    it.queue.push(0, 1);
    it.queue.push(1, 1);
    background.hurry();
    assert_eq!(it.batch(), [0, 1]);
    for _ in 0..3 {
        it.outcomes.send(Err("no".to_owned())).unwrap();
        assert_eq!(it.batch(), [0, 1], "it is tried again soon");
    }
    it.outcomes.send(Ok(())).unwrap();
    assert!(background.finish(TIMEOUT));
    assert!(background.undelivered().is_empty());
}

#[test]
fn what_is_not_delivered_is_counted_by_name_wherever_it_waits() {
    let background = Arc::new(Background::default());
    let (one, other) =
        (scripted(&background, serde_json::json!({})), scripted(&background, serde_json::json!({})));
    (0..3).for_each(|entry| one.queue.push(entry, 1));
    other.queue.push(0, 1);
    assert_eq!((one.batch(), other.batch()), (vec![0], vec![0]));
    let (texts, delivered) = mpsc::channel();
    let (go_on, wait) = mpsc::channel::<()>();
    let wait = Arc::new(Mutex::new(wait));
    let deliver = move |text: Vec<u8>| {
        texts.send(text.len()).unwrap();
        let wait = wait.clone();
        async move {
            let blocked = move || wait.lock().unwrap().recv().is_ok();
            let _ = tokio::task::spawn_blocking(blocked).await;
            (text, Ok(()))
        }
    };
    let lines = Lines::new(Sender { name: "lines".into(), ..sender(&background) }, deliver);
    lines.write(0, |out| out.push(b'a'));
    delivered.recv_timeout(TIMEOUT).unwrap();
    lines.write(1, |out| out.push(b'b'));
    lines.write(1, |out| out.push(b'c'));
    assert!(!background.finish(Duration::ZERO));
    let expected = [("lines".to_owned(), 3), ("q".to_owned(), 4)];
    assert!(background.undelivered().into_iter().eq(expected), "{:?}", background.undelivered());
    drop(go_on);
    (0..3).for_each(|_| one.outcomes.send(Ok(())).unwrap());
    other.outcomes.send(Ok(())).unwrap();
    assert!(background.finish(TIMEOUT));
    assert!(background.undelivered().is_empty());
}

#[test]
fn batches_are_delivered_side_by_side_where_that_is_wanted() {
    let background = Arc::new(Background::default());
    let it = scripted(&background, serde_json::json!({ "concurrency_limit": -1 }));
    (0..2).for_each(|entry| it.queue.push(entry, 1));
    // Neither has an outcome yet.
    assert_eq!([it.batch(), it.batch()], [[0], [1]]);
    (0..2).for_each(|_| it.outcomes.send(Ok(())).unwrap());
    assert!(background.finish(TIMEOUT));
}

#[test]
fn lines_of_all_workers_arrive_whole_in_the_order_of_each_and_after_the_last_handle_is_gone() {
    let background = Arc::new(Background::default());
    let (texts, delivered) = mpsc::channel();
    let deliver = move |text: Vec<u8>| {
        texts.send(String::from_utf8(text.clone()).unwrap()).unwrap();
        async move { (text, Ok(())) }
    };
    let lines = Lines::new(sender(&background), deliver);
    std::thread::scope(|scope| {
        for worker in 0..4 {
            let lines = &lines;
            scope.spawn(move || {
                for number in 0..5_000 {
                    lines.write(worker, |out| out.extend_from_slice(format!("{worker} {number}").as_bytes()));
                }
            });
        }
    });
    drop(lines);
    assert!(background.finish(TIMEOUT));
    let text: String = delivered.try_iter().collect();
    for worker in 0..4 {
        let of_worker = text.lines().filter(|line| line.starts_with(&worker.to_string()));
        let expected = (0..5_000).map(|number| format!("{worker} {number}"));
        assert!(of_worker.eq(expected), "worker {worker}");
    }
}

#[test]
fn lines_that_cannot_be_delivered_or_kept_are_counted() {
    let background = Arc::new(Background::default());
    let sender = sender(&background);
    let dropped = sender.dropped.clone();
    let (begun, begins) = mpsc::channel();
    let (go_on, wait) = mpsc::channel::<()>();
    let wait = Arc::new(Mutex::new(wait));
    let lines = Lines::new(sender, move |text: Vec<u8>| {
        begun.send(()).unwrap();
        let wait = wait.clone();
        async move {
            let blocked = move || wait.lock().unwrap().recv().is_ok();
            let _ = tokio::task::spawn_blocking(blocked).await;
            let lost = Undelivered::all(&text, "no");
            (text, Err(lost))
        }
    });
    let kilobyte = |out: &mut Vec<u8>| out.resize(out.len() + 1023, b'x');
    lines.write(0, kilobyte);
    begins.recv_timeout(TIMEOUT).unwrap();
    // One is in flight, and this is as much as fits.
    (0..2 * 1024).for_each(|_| lines.write(0, kilobyte));
    assert_eq!(dropped.load(std::sync::atomic::Ordering::Relaxed), 0);
    (0..3).for_each(|_| lines.write(0, kilobyte));
    assert_eq!(dropped.load(std::sync::atomic::Ordering::Relaxed), 3);
    drop(go_on);
    assert!(background.finish(TIMEOUT));
    assert_eq!(dropped.load(std::sync::atomic::Ordering::Relaxed), 3 + 1 + 2 * 1024);
}
