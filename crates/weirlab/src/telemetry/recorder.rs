//! What is known of a run while it goes on: what the generator has counted, and what the processes have used.
use super::exposition::Exposition;
use crate::host::{ClientRequest, Host, HostError, Trees};
use crate::load::{BOUNDS, Durations, LiveCounters, LiveSnapshot};
use crate::observe::Sample;
use crate::result::Block;
use rustix::time::{ClockId, clock_gettime};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Collects it, and writes it as metrics.
#[derive(Default)]
pub struct Recorder {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// By case and target.
    totals: BTreeMap<(String, String), Totals>,
    /// The targets that are up, by cell.
    up: BTreeMap<usize, UpTarget>,
}

/// The blocks of a cell so far.
#[derive(Default)]
struct Totals {
    /// Of blocks that are over.
    settled: LiveSnapshot,
    /// Of the one in progress.
    live: Option<Arc<LiveCounters>>,
    round: u32,
}

struct UpTarget {
    case: String,
    target: String,
    metrics: Option<Metrics>,
    parts: Vec<Part>,
}

/// Where a target has metrics of its own.
pub struct Metrics {
    /// The host that asks for them.
    pub host: Arc<dyn Host>,
    /// The listener.
    pub address: SocketAddr,
    /// The path.
    pub path: String,
}

/// A part of a measurement whose processes are watched.
pub struct Part {
    /// Such as `gateway` or `upstream`.
    pub name: &'static str,
    /// Its processes.
    pub trees: Box<dyn Trees>,
}

impl Recorder {
    /// A block begins: its load counts in here.
    pub fn begin(&self, case: &str, target: &str, round: u32, threads: usize) -> LiveBlock<'_> {
        let live = Arc::new(LiveCounters::new(threads));
        let cell = (case.to_owned(), target.to_owned());
        let mut state = self.state();
        let totals = state.totals.entry(cell.clone()).or_default();
        (totals.live, totals.round) = (Some(Arc::clone(&live)), round);
        LiveBlock { recorder: self, cell, live }
    }

    /// A target is up.
    pub fn up(&self, cell: usize, (case, target): (&str, &str), metrics: Option<Metrics>, parts: Vec<Part>) {
        let up = UpTarget { case: case.to_owned(), target: target.to_owned(), metrics, parts };
        self.state().up.insert(cell, up);
    }

    /// The target of a cell is about to end.
    pub fn down(&self, cell: usize) {
        self.state().up.remove(&cell);
    }

    /// What a target answers to a scrape; none while it is not up or has no metrics.
    pub(super) fn scrape(&self, target: &str) -> Option<Result<Vec<u8>, HostError>> {
        let (host, request) = {
            let state = self.state();
            let up = state.up.values().rev().find(|up| up.target == target)?;
            let metrics = up.metrics.as_ref()?;
            (Arc::clone(&metrics.host), ClientRequest::get(metrics.address, &metrics.path))
        };
        Some(host.send(&request).map(|response| response.body))
    }

    /// The metrics at this moment.
    pub(super) fn render(&self) -> String {
        let mut state = self.state();
        let mut text = Exposition::default();
        requests(&state.totals, &mut text);
        durations(&state.totals, &mut text);
        rounds(&state.totals, &mut text);
        processes(&mut state.up, &mut text);
        text.finish()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A block in progress. Dropping it keeps what was counted.
pub struct LiveBlock<'a> {
    recorder: &'a Recorder,
    cell: (String, String),
    live: Arc<LiveCounters>,
}

impl LiveBlock<'_> {
    /// Where the load counts.
    #[must_use]
    pub fn counters(&self) -> Arc<LiveCounters> {
        Arc::clone(&self.live)
    }

    /// The block is over; what it came to counts, also where the generator did not count meanwhile.
    pub fn finish(self, block: &Block) {
        let snapshot = LiveSnapshot {
            answers: block.answers,
            durations: Durations::from(block.latencies.shown()),
            errors: block.errors.clone(),
        };
        self.settle(&snapshot);
    }

    fn settle(&self, counted: &LiveSnapshot) {
        let mut state = self.recorder.state();
        let totals = state.totals.entry(self.cell.clone()).or_default();
        if totals.live.take().is_some() {
            totals.settled.add(counted);
        }
    }
}

impl Drop for LiveBlock<'_> {
    fn drop(&mut self) {
        self.settle(&self.live.snapshot());
    }
}

impl Totals {
    fn now(&self) -> LiveSnapshot {
        let mut now = self.settled.clone();
        if let Some(live) = &self.live {
            now.add(&live.snapshot());
        }
        now
    }
}

type AllTotals = BTreeMap<(String, String), Totals>;

fn requests(all: &AllTotals, text: &mut Exposition) {
    text.family("weirlab_requests_total", "counter", "Responses that the generator got, right or wrong.");
    for ((case, target), totals) in all {
        text.sample("weirlab_requests_total", &[("case", case), ("target", target)], totals.now().answers);
    }
    text.family(
        "weirlab_errors_total",
        "counter",
        "What went wrong with requests and connections, by class.",
    );
    for ((case, target), totals) in all {
        for (class, count) in totals.now().errors {
            text.sample(
                "weirlab_errors_total",
                &[("case", case), ("target", target), ("class", &class)],
                count,
            );
        }
    }
}

fn durations(all: &AllTotals, text: &mut Exposition) {
    const NAME: &str = "weirlab_request_duration_seconds";
    text.family(NAME, "histogram", "How long right responses took; in an open loop since they were due.");
    for ((case, target), totals) in all {
        let durations = totals.now().durations;
        let labels = [("case", case.as_str()), ("target", target.as_str())];
        let mut sum = 0;
        for (bound, count) in BOUNDS.iter().zip(durations.buckets) {
            sum += count;
            let bound = (*bound as f64 / 1e9).to_string();
            let [case, target] = labels;
            text.sample(&format!("{NAME}_bucket"), &[case, target, ("le", &bound)], sum);
        }
        let [case, target] = labels;
        text.sample(&format!("{NAME}_bucket"), &[case, target, ("le", "+Inf")], durations.count());
        text.sample(&format!("{NAME}_sum"), &labels, durations.nanoseconds as f64 / 1e9);
        text.sample(&format!("{NAME}_count"), &labels, durations.count());
    }
}

fn rounds(all: &AllTotals, text: &mut Exposition) {
    text.family("weirlab_round", "gauge", "The round that is measured now.");
    for ((case, target), totals) in all.iter().filter(|(_, totals)| totals.live.is_some()) {
        text.sample("weirlab_round", &[("case", case), ("target", target)], totals.round);
    }
}

/// CPU time counts from the start of a process; where another takes its place, the counter begins anew.
fn processes(up: &mut BTreeMap<usize, UpTarget>, text: &mut Exposition) {
    let generator = clock_gettime(ClockId::ProcessCPUTime);
    let generator = Duration::try_from(generator).unwrap_or_default().as_secs_f64();
    let mut used = vec![("", "", "generator", generator, None)];
    for up in up.values_mut() {
        for part in &mut up.parts {
            // A process that has just ended, or a connection that was lost, has no figures.
            let Ok(samples) = part.trees.sample() else { continue };
            let usage = samples.iter().map(|sample| sample.since(&Sample::default()));
            let (cpu_us, rss_kib) =
                usage.fold((0.0, 0), |(cpu, rss), usage| (cpu + usage.cpu_us, rss + usage.rss_kib));
            used.push((&up.case, &up.target, part.name, cpu_us / 1e6, Some(rss_kib * 1024)));
        }
    }
    text.family("weirlab_cpu_seconds_total", "counter", "CPU time of the processes of each part.");
    for (case, target, part, seconds, _) in &used {
        let labels = [("case", *case), ("target", *target), ("part", *part)];
        text.sample("weirlab_cpu_seconds_total", &labels, seconds);
    }
    text.family("weirlab_resident_memory_bytes", "gauge", "Resident memory of the processes of each part.");
    for (case, target, part, _, memory) in used {
        if let Some(memory) = memory {
            let labels = [("case", case), ("target", target), ("part", part)];
            text.sample("weirlab_resident_memory_bytes", &labels, memory);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_block_came_to_takes_the_place_of_what_it_counted_meanwhile() {
        let recorder = Recorder::default();
        let block = recorder.begin("kong/plain-1 http", "weir", 3, 1);
        assert!(recorder.render().contains("weirlab_round{case=\"kong/plain-1 http\",target=\"weir\"} 3\n"));
        let mut result = Block { answers: 7, ..Block::default() };
        result.latencies.service.record(Duration::from_millis(1));
        result.errors.insert("timeout".to_owned(), 2);
        block.finish(&result);
        drop(recorder.begin("kong/plain-1 http", "weir", 4, 1));
        let text = recorder.render();
        let cell = "case=\"kong/plain-1 http\",target=\"weir\"";
        for line in [
            format!("weirlab_requests_total{{{cell}}} 7"),
            format!("weirlab_errors_total{{{cell},class=\"timeout\"}} 2"),
            format!("weirlab_request_duration_seconds_bucket{{{cell},le=\"0.000786432\"}} 0"),
            format!("weirlab_request_duration_seconds_bucket{{{cell},le=\"0.001048576\"}} 1"),
            format!("weirlab_request_duration_seconds_count{{{cell}}} 1"),
        ] {
            assert!(text.contains(&format!("{line}\n")), "no {line} in {text}");
        }
        assert!(!text.contains("weirlab_round{"), "{text}");
    }
}
