//! Processes and sockets as the kernel shows them below `/proc`.
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;

/// One process, as `/proc/PID/stat` has it. Times are in clock ticks.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Stat {
    /// The process.
    pub pid: u32,
    /// The name of its program, cut to 15 bytes by the kernel.
    pub name: String,
    /// Such as `S`; `Z` is one that has ended and was not waited for.
    pub state: char,
    /// Its parent.
    pub parent: u32,
    /// Its process group.
    pub group: u32,
    /// The device of its controlling terminal; 0 where it has none, as daemons.
    pub terminal: u32,
    /// In user mode, threads that have ended included.
    pub user: u64,
    /// In the kernel.
    pub system: u64,
    /// In user mode, by children that were waited for.
    pub children_user: u64,
    /// In the kernel, by children that were waited for.
    pub children_system: u64,
    /// When it began, since the machine did: with the pid, this names a process for good.
    pub started: u64,
}

impl Stat {
    /// Of a process that is there.
    #[must_use]
    pub fn of(pid: u32) -> Option<Stat> {
        Stat::parse(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
    }

    /// Whether it has ended and only waits to be waited for.
    #[must_use]
    pub fn ended(&self) -> bool {
        matches!(self.state, 'Z' | 'X')
    }

    pub(super) fn parse(line: &str) -> Option<Stat> {
        // A name may hold blanks and parentheses; the last parenthesis ends it.
        let (head, tail) = line.rsplit_once(')')?;
        let (pid, name) = head.split_once(" (")?;
        let fields: Vec<&str> = tail.split_ascii_whitespace().collect();
        let number = |index: usize| fields.get(index).and_then(|field| field.parse::<u64>().ok());
        let id = |index: usize| number(index).and_then(|number| u32::try_from(number).ok());
        Some(Stat {
            pid: pid.trim().parse().ok()?,
            name: name.to_owned(),
            state: fields.first()?.chars().next()?,
            parent: id(1)?,
            group: id(2)?,
            terminal: id(4)?,
            user: number(11)?,
            system: number(12)?,
            children_user: number(13)?,
            children_system: number(14)?,
            started: number(19)?,
        })
    }
}

/// Every process of this machine that can be seen.
#[must_use]
pub fn processes() -> BTreeMap<u32, Stat> {
    numbers("/proc").into_iter().filter_map(|pid| Some((pid, Stat::of(pid)?))).collect()
}

/// The given processes and all that descend from them.
#[must_use]
pub fn with_descendants(roots: BTreeSet<u32>, processes: &BTreeMap<u32, Stat>) -> BTreeSet<u32> {
    let mut found = roots;
    loop {
        let more: Vec<u32> = processes
            .values()
            .filter(|stat| found.contains(&stat.parent) && !found.contains(&stat.pid))
            .map(|stat| stat.pid)
            .collect();
        if more.is_empty() {
            return found;
        }
        found.extend(more);
    }
}

/// The id of this boot of the machine; empty if the kernel has none.
#[must_use]
pub fn boot() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_owned()
}

/// The command line of a process, blanks between its arguments.
#[must_use]
pub fn command_line(pid: u32) -> String {
    let bytes = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    String::from_utf8_lossy(&bytes).replace('\0', " ").trim().to_owned()
}

/// The folder a process is in.
#[must_use]
pub fn folder(pid: u32) -> Option<PathBuf> {
    fs::read_link(format!("/proc/{pid}/cwd")).ok()
}

/// The value of an environment variable that a process was started with. Some programs overwrite theirs.
#[must_use]
pub fn variable(pid: u32, name: &str) -> Option<String> {
    let environment = fs::read(format!("/proc/{pid}/environ")).ok()?;
    let mut variables =
        environment.split(|byte| *byte == 0).filter_map(|entry| std::str::from_utf8(entry).ok());
    variables.find_map(|entry| entry.strip_prefix(name)?.strip_prefix('=').map(str::to_owned))
}

/// The state of a TCP socket in `/proc/net/tcp`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tcp {
    /// It has a peer.
    Established,
    /// It waits for peers.
    Listening,
}

/// The inodes of the TCP sockets with this local port and state.
#[must_use]
pub fn sockets(port: u16, state: Tcp) -> BTreeSet<u64> {
    let tables =
        ["/proc/net/tcp", "/proc/net/tcp6"].map(|table| fs::read_to_string(table).unwrap_or_default());
    tables
        .iter()
        .flat_map(|table| table.lines().skip(1))
        .filter_map(|line| inode(line, port, state))
        .collect()
}

fn inode(line: &str, port: u16, state: Tcp) -> Option<u64> {
    let mut fields = line.split_ascii_whitespace().skip(1);
    let (_, local) = fields.next()?.rsplit_once(':')?;
    let wanted = match state {
        Tcp::Established => "01",
        Tcp::Listening => "0A",
    };
    let here = u16::from_str_radix(local, 16).ok()? == port && fields.nth(1)? == wanted;
    // Between the state and the inode: queues, timer, retransmissions, user, timeout.
    if here { fields.nth(5)?.parse().ok() } else { None }
}

/// The inodes of the sockets that a process has open; none where we may not look.
#[must_use]
pub fn open_sockets(pid: u32) -> Vec<u64> {
    let Ok(entries) = fs::read_dir(format!("/proc/{pid}/fd")) else {
        return Vec::new();
    };
    let links = entries.flatten().filter_map(|entry| fs::read_link(entry.path()).ok());
    links
        .filter_map(|link| link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok())
        .collect()
}

/// The entries of a folder that are numbers, ascending.
pub(super) fn numbers(folder: &str) -> BTreeSet<u32> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_blanks_and_parentheses_does_not_shift_the_fields() {
        let line = "42 (a) b (c) S 7 40 40 0 -1 4194560 1 2 3 4 11 12 13 14 20 0 1 0 999 1 2";
        let stat = Stat::parse(line).unwrap();
        assert_eq!((stat.pid, stat.name.as_str(), stat.state), (42, "a) b (c", 'S'));
        assert_eq!((stat.parent, stat.group, stat.started), (7, 40, 999));
        assert_eq!((stat.user, stat.system, stat.children_user, stat.children_system), (11, 12, 13, 14));
    }

    #[test]
    fn a_line_of_the_socket_table_yields_its_inode() {
        let line = "   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 31337 1 0";
        assert_eq!(inode(line, 8080, Tcp::Listening), Some(31337));
        assert_eq!(inode(line, 8080, Tcp::Established), None);
        assert_eq!(inode(line, 8081, Tcp::Listening), None);
    }
}
