//! Who runs on which CPUs.
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::collections::BTreeMap;
use std::fs;
use std::io;

/// The CPUs that this process may use, ascending; only the first one if the kernel does not list them.
#[must_use]
pub fn allowed_cpus() -> Vec<usize> {
    match sched_getaffinity(None) {
        Ok(set) => (0..CpuSet::MAX_CPU).filter(|cpu| set.is_set(*cpu)).collect(),
        Err(_) => vec![0],
    }
}

/// Has the calling thread, and every thread and process that it starts from now on, run on these CPUs alone; on any,
/// if there are none.
///
/// # Errors
/// When this process may not use any of them.
pub fn pin_current_thread(cpus: &[usize]) -> io::Result<()> {
    if cpus.is_empty() {
        return Ok(());
    }
    let mut set = CpuSet::new();
    for cpu in cpus.iter().copied().filter(|cpu| *cpu < CpuSet::MAX_CPU) {
        set.set(cpu);
    }
    Ok(sched_setaffinity(None, &set)?)
}

/// Which CPUs the parts of a measurement get.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// The gateway's.
    pub target: Vec<usize>,
    /// The upstream's.
    pub upstream: Vec<usize>,
    /// The load generator's.
    pub generator: Vec<usize>,
    /// Those of a control plane, on the target's machine.
    pub control_plane: Vec<usize>,
    /// Whether any two of them share a CPU: then requests per second depend on all of them, and only CPU time per
    /// request is a gateway's own.
    pub sharing: bool,
    /// All this for people.
    pub words: String,
}

impl Layout {
    /// The target keeps to itself before the others do: one CPU is shared by all; of two, upstream and generator share
    /// one; of three, each has one; of more, the target has one for each worker as far as one is left for either of
    /// the others, and those divide the rest. CPUs of one core stay on one side where there are cores enough.
    #[must_use]
    pub fn plan(cpus: &[usize], workers: usize) -> Layout {
        Layout::on(&cores(cpus, siblings), workers)
    }

    /// On the CPUs of one machine, by their cores.
    pub(crate) fn on(cores: &[Vec<usize>], workers: usize) -> Layout {
        let cpus = sorted(cores);
        let mut layout = match cpus.as_slice() {
            [] => Layout::shared(Vec::new(), "generator, target and upstream run on any CPU".to_owned()),
            [only] => Layout::shared(vec![*only], format!("generator, target and upstream share CPU {only}")),
            [first, second] => Layout {
                target: vec![*first],
                upstream: vec![*second],
                generator: vec![*second],
                control_plane: Vec::new(),
                sharing: true,
                words: format!("target on CPU {first}; generator and upstream share CPU {second}"),
            },
            _ => Layout::apart(cores, &cpus, workers),
        };
        layout.control_plane.clone_from(&layout.upstream);
        let beside = layout.beside(cores);
        if !beside.is_empty() {
            let who = beside.join(" and ");
            layout.words.push_str(&format!("; {who} on the same core as the target"));
        }
        layout
    }

    /// Who runs on another CPU of a core that the target is on.
    fn beside(&self, cores: &[Vec<usize>]) -> Vec<&'static str> {
        let of_target = |core: &&Vec<usize>| core.iter().any(|cpu| self.target.contains(cpu));
        let near: Vec<usize> = cores.iter().filter(of_target).flatten().copied().collect();
        let is_near = |cpu: &usize| near.contains(cpu) && !self.target.contains(cpu);
        let parts = [("generator", &self.generator), ("upstream", &self.upstream)];
        parts.into_iter().filter(|(_, cpus)| cpus.iter().any(is_near)).map(|(name, _)| name).collect()
    }

    /// The CPUs of one of several instances of the target: some of its own where there are enough of them.
    #[must_use]
    pub fn of_instance(&self, nth: usize, count: usize) -> Vec<usize> {
        let each = self.target.len() / count.max(1);
        match each {
            0 => self.target.clone(),
            _ => self.target[nth * each..(nth + 1) * each].to_vec(),
        }
    }

    /// Says in words where several instances of the target run, and what runs beside them.
    #[must_use]
    pub fn with_instances(mut self, count: usize, beside: &str) -> Layout {
        if count > 1 {
            let each = self.target.len() / count;
            let words = match each {
                0 => "share it".to_owned(),
                1 => "have a CPU each".to_owned(),
                each => format!("have {each} CPUs each"),
            };
            self.words.push_str(&format!("; instances of the target {words}"));
        }
        self.words.push_str(&format!("; {beside} with the upstream"));
        self
    }

    fn shared(cpus: Vec<usize>, words: String) -> Layout {
        let control_plane = Vec::new();
        Layout {
            target: cpus.clone(),
            upstream: cpus.clone(),
            generator: cpus,
            control_plane,
            sharing: true,
            words,
        }
    }

    fn apart(cores: &[Vec<usize>], cpus: &[usize], workers: usize) -> Layout {
        let (target, rest) = divide(cores, cpus, workers);
        // An odd one goes to the generator: sending and timing costs more than a fixed answer.
        let (upstream, generator) = rest.split_at(rest.len() / 2);
        let (upstream, generator) = (sorted(upstream), sorted(generator));
        let words = format!(
            "target on {}; upstream on {}; generator on {}",
            named(&target),
            named(&upstream),
            named(&generator)
        );
        Layout { target, upstream, generator, control_plane: Vec::new(), sharing: false, words }
    }
}

/// The target's CPUs and the cores of the others: a core for each worker, whose other CPUs stay idle; else whole cores;
/// and where even that leaves less than a core to each of the others, CPUs whatever their core.
fn divide(cores: &[Vec<usize>], cpus: &[usize], workers: usize) -> (Vec<usize>, Vec<Vec<usize>>) {
    let workers = workers.max(1);
    if workers + 2 <= cores.len() {
        let (own, rest) = cores.split_at(workers);
        return (own.iter().filter_map(|core| core.first().copied()).collect(), rest.to_vec());
    }
    for own in 1..cores.len().saturating_sub(1) {
        let mut target = cores[..own].concat();
        if workers <= target.len() {
            target.truncate(workers);
            target.sort_unstable();
            return (target, cores[own..].to_vec());
        }
    }
    let (target, rest) = cpus.split_at(workers.min(cpus.len() - 2));
    (target.to_vec(), rest.iter().map(|cpu| vec![*cpu]).collect())
}

fn sorted(cores: &[Vec<usize>]) -> Vec<usize> {
    let mut cpus = cores.concat();
    cpus.sort_unstable();
    cpus
}

/// The CPUs that this process may use, by the core that they are part of.
#[must_use]
pub(crate) fn allowed_cores() -> Vec<Vec<usize>> {
    cores(&allowed_cpus(), siblings)
}

/// CPUs by the core that they are part of, by each core's first.
fn cores(cpus: &[usize], siblings: impl Fn(usize) -> Option<String>) -> Vec<Vec<usize>> {
    let mut cores: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    for cpu in cpus {
        // A CPU that the kernel does not list is a core by itself.
        cores.entry(siblings(*cpu).unwrap_or_else(|| cpu.to_string())).or_default().push(*cpu);
    }
    let mut cores: Vec<Vec<usize>> = cores.into_values().collect();
    cores.sort();
    cores
}

/// The CPUs that share a core with this one, as the kernel lists them.
fn siblings(cpu: usize) -> Option<String> {
    let path = format!("/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list");
    fs::read_to_string(path).ok().map(|list| list.trim().to_owned())
}

/// Such as `CPU 3` or `CPUs 0-2,5`.
pub(crate) fn named(cpus: &[usize]) -> String {
    let ranges = ranges(cpus);
    if cpus.len() == 1 { format!("CPU {ranges}") } else { format!("CPUs {ranges}") }
}

/// As the kernel and container engines write sets of CPUs.
pub(crate) fn ranges(cpus: &[usize]) -> String {
    let mut ranges: Vec<(usize, usize)> = Vec::new();
    for cpu in cpus {
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 == *cpu => *last = *cpu,
            _ => ranges.push((*cpu, *cpu)),
        }
    }
    let written = ranges.iter().map(|(first, last)| match first == last {
        true => first.to_string(),
        false => format!("{first}-{last}"),
    });
    written.collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Cores of one CPU each.
    fn each(cpus: &[usize]) -> Vec<Vec<usize>> {
        cores(cpus, |_| None)
    }

    /// Four cores of two CPUs each, numbered as kernels do.
    fn pairs() -> Vec<Vec<usize>> {
        cores(&[0, 1, 2, 3, 4, 5, 6, 7], |cpu| Some(format!("{},{}", cpu % 4, cpu % 4 + 4)))
    }

    #[test]
    fn cpus_of_one_core_are_on_one_side() {
        let one = Layout::on(&pairs(), 1);
        assert_eq!(one.target, [0]);
        assert_eq!((one.upstream, one.generator), (vec![1, 5], vec![2, 3, 6, 7]));
        assert_eq!(Layout::on(&pairs(), 2).target, [0, 1]);
        let three = Layout::on(&pairs(), 3);
        assert_eq!(three.target, [0, 1, 4]);
        assert_eq!(three.words, "target on CPUs 0-1,4; upstream on CPUs 2,6; generator on CPUs 3,7");
    }

    #[test]
    fn where_a_core_must_be_divided_that_is_said() {
        let six = Layout::on(&pairs(), 6);
        assert_eq!(
            (&six.target, &six.upstream, &six.generator),
            (&vec![0, 1, 2, 3, 4, 5], &vec![6], &vec![7])
        );
        assert!(
            six.words.ends_with("; generator and upstream on the same core as the target"),
            "{}",
            six.words
        );
        let two = Layout::on(&[vec![0, 1]], 1);
        assert!(
            two.words.ends_with("; generator and upstream on the same core as the target"),
            "{}",
            two.words
        );
    }

    #[test]
    fn one_cpu_is_shared_by_all() {
        let layout = Layout::on(&each(&[3]), 4);
        assert_eq!((&layout.target, &layout.upstream, &layout.generator), (&vec![3], &vec![3], &vec![3]));
        assert!(layout.sharing);
        assert_eq!(layout.words, "generator, target and upstream share CPU 3");
    }

    #[test]
    fn of_two_cpus_the_target_has_one() {
        let layout = Layout::on(&each(&[0, 1]), 2);
        assert_eq!((&layout.target, &layout.upstream, &layout.generator), (&vec![0], &vec![1], &vec![1]));
        assert!(layout.sharing);
        assert_eq!(layout.words, "target on CPU 0; generator and upstream share CPU 1");
    }

    #[test]
    fn from_three_cpus_on_nothing_is_shared() {
        let three = Layout::on(&each(&[2, 5, 7]), 4);
        assert_eq!((&three.target, &three.upstream, &three.generator), (&vec![2], &vec![5], &vec![7]));
        let many = Layout::on(&each(&[0, 1, 2, 3, 4, 5, 6]), 2);
        assert_eq!(many.target, [0, 1]);
        assert_eq!(many.upstream, [2, 3]);
        assert_eq!(many.generator, [4, 5, 6]);
        assert!(!three.sharing && !many.sharing);
        assert_eq!(many.words, "target on CPUs 0-1; upstream on CPUs 2-3; generator on CPUs 4-6");
    }

    #[test]
    fn more_workers_than_cpus_leave_one_for_either_of_the_others() {
        let layout = Layout::on(&each(&[0, 1, 2, 3]), 16);
        assert_eq!((layout.target.len(), layout.upstream.len(), layout.generator.len()), (2, 1, 1));
    }

    #[test]
    fn instances_have_cpus_of_their_own_where_there_are_enough() {
        let many = Layout::on(&each(&[0, 1, 2, 3, 4, 5, 6]), 4).with_instances(2, "front");
        assert_eq!((many.of_instance(0, 2), many.of_instance(1, 2)), (vec![0, 1], vec![2, 3]));
        assert!(
            many.words.ends_with("; instances of the target have 2 CPUs each; front with the upstream"),
            "{}",
            many.words
        );
        let few = Layout::on(&each(&[0, 1]), 4).with_instances(5, "front");
        assert_eq!(few.of_instance(4, 5), [0]);
        assert!(few.words.contains("; instances of the target share it"), "{}", few.words);
    }

    #[test]
    fn a_pinned_thread_passes_its_cpus_on_to_what_it_starts() {
        let last = *allowed_cpus().last().unwrap();
        let pinned = std::thread::spawn(move || {
            pin_current_thread(&[last]).unwrap();
            let output = std::process::Command::new("cat").arg("/proc/self/status").output().unwrap();
            (allowed_cpus(), String::from_utf8(output.stdout).unwrap())
        });
        let (own, status) = pinned.join().unwrap();
        assert_eq!(own, [last]);
        assert!(status.contains(&format!("Cpus_allowed_list:\t{last}\n")), "{status}");
        assert!(allowed_cpus().len() >= own.len());
    }
}
