//! What each process of a block used, where a case has more of them than one gateway: its control plane, its gateways, the
//! front, the upstream and the generator.
use super::target_runner::RunningTarget;
use crate::observe::{ProcessTree, Sample};
use crate::result::Part;

/// A process whose use is shown by itself.
pub(crate) struct Observed {
    name: &'static str,
    tree: ProcessTree,
}

/// The processes beside the gateways and the upstream.
pub(crate) fn beside(open: &RunningTarget) -> Result<Vec<Observed>, String> {
    let control_plane = open.control_plane.as_ref().map(|plane| plane.pid()).transpose()?;
    let front = open.front.as_ref().map(|front| front.pid());
    let pids = [("control plane", control_plane), ("front", front)];
    let observed = |(name, pid): (_, Option<u32>)| Some(Observed { name, tree: ProcessTree::new(pid?) });
    Ok(pids.into_iter().filter_map(observed).collect())
}

impl Observed {
    pub(crate) fn sample(&mut self) -> Sample {
        self.tree.sample()
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
