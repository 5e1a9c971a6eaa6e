//! Which CPUs of which host the parts of a measurement get.
use crate::observe::{Layout, named};

/// A role's host: its name, and the CPUs of it by core.
#[derive(Clone, Debug)]
pub(super) struct Place {
    pub(super) host: String,
    pub(super) cores: Vec<Vec<usize>>,
}

impl Place {
    fn cpus(&self) -> Vec<usize> {
        let mut cpus = self.cores.concat();
        cpus.sort_unstable();
        cpus
    }

    /// As many CPUs as there are workers, each of a core of its own where there are as many.
    fn for_workers(&self, workers: usize) -> Vec<usize> {
        let firsts: Vec<usize> = self.cores.iter().filter_map(|core| core.first().copied()).collect();
        let mut cpus = if workers <= firsts.len() { firsts } else { self.cores.concat() };
        cpus.truncate(workers.max(1));
        cpus.sort_unstable();
        cpus
    }

    fn is(&self, other: &Place) -> bool {
        self.host == other.host
    }
}

/// Divides hosts that have several roles as one machine is divided; a host with one role has all its CPUs for it.
pub(super) fn layout(target: &Place, upstream: &Place, generator: &Place, workers: usize) -> Layout {
    let mut layout = Layout::on(&target.cores, workers);
    layout.control_plane.clear();
    let beside = |layout: &Layout| {
        let mut cpus = [layout.upstream.as_slice(), &layout.generator].concat();
        cpus.sort_unstable();
        cpus.dedup();
        cpus
    };
    let rest = beside(&layout);
    let others = target.cores.concat().len() - 1;
    match (target.is(upstream), target.is(generator)) {
        (true, true) => return Layout { words: format!("on {}: {}", target.host, layout.words), ..layout },
        (true, false) => (layout.upstream, layout.generator) = (rest, generator.cpus()),
        (false, true) => (layout.upstream, layout.generator) = (upstream.cpus(), rest),
        (false, false) => {
            layout.target = target.for_workers(workers);
            (layout.upstream, layout.generator) = (upstream.cpus(), generator.cpus());
        }
    }
    layout.sharing = others == 0 && (target.is(upstream) || target.is(generator));
    if upstream.is(generator) && !target.is(upstream) {
        let cpus = upstream.cpus();
        let (first, second) = cpus.split_at(cpus.len() / 2);
        layout.sharing = first.is_empty();
        if !layout.sharing {
            (layout.upstream, layout.generator) = (first.to_vec(), second.to_vec());
        }
    }
    let on = |cpus: &[usize], place: &Place| format!("{} of {}", named(cpus), place.host);
    layout.words = format!(
        "target on {}; upstream on {}; generator on {}",
        on(&layout.target, target),
        on(&layout.upstream, upstream),
        on(&layout.generator, generator)
    );
    layout
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(host: &str, cpus: usize) -> Place {
        Place { host: host.to_owned(), cores: (0..cpus).map(|cpu| vec![cpu]).collect() }
    }

    #[test]
    fn a_host_with_one_role_gives_it_all_its_cpus() {
        let layout = layout(&place("a", 4), &place("b", 2), &place("c", 3), 2);
        assert_eq!(
            (&*layout.target, &*layout.upstream, &*layout.generator),
            (&[0, 1][..], &[0, 1][..], &[0, 1, 2][..])
        );
        assert!(!layout.sharing);
        assert_eq!(
            layout.words,
            "target on CPUs 0-1 of a; upstream on CPUs 0-1 of b; generator on CPUs 0-2 of c"
        );
    }

    #[test]
    fn a_host_with_two_roles_is_divided() {
        let (gateway, load) = (place("gateway", 4), place("load", 4));
        let layout = |a, b, c| layout(a, b, c, 2);
        let apart = layout(&gateway, &load, &load);
        assert_eq!(
            (&*apart.target, &*apart.upstream, &*apart.generator),
            (&[0, 1][..], &[0, 1][..], &[2, 3][..])
        );
        let together = layout(&gateway, &gateway, &load);
        assert_eq!((&*together.target, &*together.upstream), (&[0, 1][..], &[2, 3][..]));
        assert!(!apart.sharing && !together.sharing);
        let one = place("load", 1);
        assert!(layout(&gateway, &one, &one).sharing);
        assert!(layout(&one, &one, &gateway).sharing);
        assert!(layout(&gateway, &gateway, &gateway).words.starts_with("on gateway: target on CPUs 0-1;"));
    }
}
