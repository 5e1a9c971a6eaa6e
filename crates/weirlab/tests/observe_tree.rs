//! What processes use, measured on real ones that do a known amount of work.
#![allow(clippy::unwrap_used)]
use rustix::time::{ClockId, clock_gettime};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use weirlab::observe::{MachineSample, ProcessTree, Sample};

/// A shell that takes commands on its standard input and says when each is done.
struct Shell(Child);

impl Shell {
    fn start() -> Self {
        Shell(Command::new("bash").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap())
    }

    fn run(&mut self, command: &str) {
        writeln!(self.0.stdin.as_mut().unwrap(), "{command}; echo done").unwrap();
        let mut line = String::new();
        BufReader::new(self.0.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "done\n");
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        self.0.wait().unwrap();
    }
}

fn thread_cpu() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap())
}

fn burn(amount: Duration) {
    let until = thread_cpu() + amount;
    while thread_cpu() < until {
        std::hint::black_box((0..1000).sum::<u64>());
    }
}

const COUNT: &str = "i=0; while ((i < 60000)); do ((i += 1)); done";

#[test]
fn work_is_charged_to_the_tree_and_idleness_is_not() {
    let mut shell = Shell::start();
    shell.run(":");
    let mut tree = ProcessTree::new(shell.0.id());
    let before = tree.sample();
    shell.run(COUNT);
    let worked = tree.sample();
    std::thread::sleep(Duration::from_millis(100));
    let rested = tree.sample();

    let work = worked.since(&before);
    assert!(work.cpu_us > 20_000.0, "{work:?}");
    assert!((work.user_us + work.system_us - work.cpu_us).abs() < 1.0, "{work:?}");
    assert!(work.user_us > work.system_us, "{work:?}");
    assert_eq!(work.processes, 1);
    assert!(work.rss_kib > 500 && work.rss_peak_kib >= work.rss_kib, "{work:?}");
    let rest = rested.since(&worked);
    assert!(rest.cpu_us < work.cpu_us / 10.0, "{rest:?} after {work:?}");
}

#[test]
fn threads_are_counted_exactly_even_when_they_are_gone() {
    let mut tree = ProcessTree::new(std::process::id());
    let before = tree.sample();
    let [burnt, seen] = [std::sync::Barrier::new(2), std::sync::Barrier::new(2)];
    let during = std::thread::scope(|scope| {
        let worker = scope.spawn(|| {
            burn(Duration::from_millis(60));
            burnt.wait();
            seen.wait();
        });
        burnt.wait();
        let during = tree.sample();
        seen.wait();
        worker.join().unwrap();
        during
    });
    let after = tree.sample();
    // Other tests' threads work in this process too, so only a lower bound holds for sure.
    assert!(during.since(&before).cpu_us >= 60_000.0, "{:?}", during.since(&before));
    assert!(
        after.since(&before).cpu_us >= during.since(&before).cpu_us,
        "what a thread had used stays counted"
    );
}

#[test]
fn a_child_that_came_and_went_between_two_samples_is_not_lost() {
    let mut shell = Shell::start();
    shell.run(":");
    let mut tree = ProcessTree::new(shell.0.id());
    let before = tree.sample();
    shell.run(&format!("( {COUNT}; {COUNT}; {COUNT} )"));
    let usage = tree.sample().since(&before);
    assert_eq!(usage.processes, 1);
    assert!(usage.cpu_us > 60_000.0, "the kernel's accounting still has it: {usage:?}");
}

/// However many processes round their times, what one of them used before it ended stays counted.
#[test]
fn a_child_that_was_seen_is_counted_to_its_end() {
    let mut shell = Shell::start();
    shell.run("for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do sleep 600 & done");
    shell.run(&format!("( read x < <(sleep 0.2); {COUNT}; {COUNT}; {COUNT} ) & worker=$!"));
    let mut tree = ProcessTree::new(shell.0.id());
    let before = tree.sample();
    assert!(before.since(&Sample::default()).processes > 20, "{before:?}");
    shell.run("wait $worker");
    let usage = tree.sample().since(&before);
    assert!(usage.cpu_us > 60_000.0, "{usage:?}");
    shell.run("kill $(jobs -p); wait");
}

#[test]
fn children_that_live_are_part_of_the_tree() {
    let mut shell = Shell::start();
    shell.run(&format!("bash -c '{COUNT}; sleep 600 & wait' & disown"));
    let mut tree = ProcessTree::new(shell.0.id());
    let deadline = Instant::now() + Duration::from_secs(20);
    let mut sample = tree.sample();
    while sample.since(&Sample::default()).processes < 3 {
        assert!(Instant::now() < deadline, "{sample:?}");
        sample = tree.sample();
    }
    assert!(sample.since(&Sample::default()).cpu_us > 20_000.0, "{sample:?}");
    let inner: Vec<u32> = tree.pids().into_iter().filter(|pid| *pid != shell.0.id()).collect();
    for pid in &inner {
        let pid = rustix::process::Pid::from_raw(i32::try_from(*pid).unwrap()).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    }
    shell.run("wait");
    let after = tree.sample();
    assert!(after.since(&Sample::default()).cpu_us >= sample.since(&Sample::default()).cpu_us, "{after:?}");
}

#[test]
fn a_tree_that_has_ended_keeps_what_it_had_used() {
    let mut shell = Shell::start();
    shell.run(COUNT);
    let mut tree = ProcessTree::new(shell.0.id());
    let alive = tree.sample().since(&Sample::default());
    drop(shell);
    let ended = tree.sample().since(&Sample::default());
    assert_eq!(ended.processes, 0);
    assert!(ended.cpu_us >= 20_000.0, "{ended:?} after {alive:?}");
}

#[test]
fn switches_are_told_apart() {
    let mut shell = Shell::start();
    shell.run(":");
    let mut tree = ProcessTree::new(shell.0.id());
    let before = tree.sample();
    for _ in 0..20 {
        shell.run("sleep 0.01");
    }
    let usage = tree.sample().since(&before);
    // On a busy machine a sleep may be over before the shell waits for it; mostly it is not.
    assert!(usage.voluntary >= 10, "it waited for each sleep: {usage:?}");
}

#[test]
fn a_sample_is_cheap() {
    let mut tree = ProcessTree::new(std::process::id());
    tree.sample();
    let before = thread_cpu();
    for _ in 0..100 {
        tree.sample();
    }
    let each = (thread_cpu() - before) / 100;
    println!("{each:?} of CPU for a sample");
    assert!(each < Duration::from_millis(5), "{each:?}");
}

#[test]
fn the_machine_is_seen_to_be_busy() {
    let before = MachineSample::now().unwrap();
    burn(Duration::from_millis(300));
    let machine = MachineSample::now().unwrap().since(&before);
    assert!(machine.idle < 1.0 && machine.idle >= 0.0, "{machine:?}");
    assert!((0.0..=1.0).contains(&machine.steal), "{machine:?}");
}
