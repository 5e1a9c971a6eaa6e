//! What each process of a block used, where a case has more of them than one gateway: its control plane, its gateways, the
//! front, the upstream and the generator.
use super::target_runner::RunningTarget;
use crate::host::{Host, HostError, Trees};
use crate::observe::Sample;
use crate::result::Part;
use std::sync::Arc;

/// A process whose use is shown by itself.
pub(crate) struct Observed {
    name: &'static str,
    tree: Box<dyn Trees>,
}

/// The processes beside the gateways and the upstream.
pub(crate) fn beside(open: &RunningTarget) -> Result<Vec<Observed>, String> {
    let control_plane = open.control_plane.as_ref().map(|plane| plane.pid()).transpose()?;
    let front = open.front.as_ref().map(|front| front.pid());
    let hosts = &open.hosts;
    let found = [("control plane", &hosts.target, control_plane), ("front", &hosts.upstream, front)];
    let observed = |(name, host, pid): (_, &Arc<dyn Host>, Option<u32>)| {
        let watch = |pid| host.watch(&[pid]).map(|tree| Observed { name, tree });
        pid.map(watch).transpose().map_err(|error| error.to_string()).transpose()
    };
    found.into_iter().filter_map(observed).collect()
}

impl Observed {
    pub(crate) fn sample(&mut self) -> Result<Sample, HostError> {
        let mut samples = self.tree.sample()?;
        Ok(samples.pop().unwrap_or_default())
    }

    /// What it used between two samples.
    pub(crate) fn part(&self, begin: &Sample, end: &Sample) -> Part {
        part(self.name.to_owned(), begin, end)
    }
}

/// What each gateway used.
pub(crate) fn gateways(open: &RunningTarget, begin: &[Sample], end: &[Sample]) -> Vec<Part> {
    let kind = if open.control_plane.is_some() { "data plane" } else { "gateway" };
    let samples = begin.iter().zip(end).enumerate();
    samples.map(|(nth, (begin, end))| part(format!("{kind} {}", nth + 1), begin, end)).collect()
}

/// What a process tree used between two samples.
pub(crate) fn part(name: String, begin: &Sample, end: &Sample) -> Part {
    let usage = end.since(begin);
    Part { name, cpu_us: usage.cpu_us, rss_kib: usage.rss_kib }
}
