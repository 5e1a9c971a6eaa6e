//! What steps of a scenario do, and how that is written.
use super::behaviour::Behaviour;
use super::dns::Answers;

/// What a step does.
#[derive(Clone, Debug, PartialEq)]
pub enum Act {
    /// Changes the behaviour of an upstream server.
    Behave(usize, Behaviour),
    /// Does something to the process of an upstream server.
    Upstream(usize, ProcessAct),
    /// Does something to the gateway.
    Gateway(ProcessAct),
    /// Has the gateway read its configuration again.
    Reload,
    /// Has a new process of the gateway's program take over.
    Upgrade,
    /// Limits how many more descriptors the gateway may open; none for the limit that it started with.
    Descriptors(Option<u64>),
    /// Changes what the name server answers.
    Dns(Answers),
    /// Does something to the server of counters or of the configuration.
    Store(StoreAct),
    /// Does something to the disk that the gateway writes to.
    Disk(DiskAct),
    /// Moves the gateway's wall clock by so many seconds.
    Clock(i64),
    /// Cuts or joins the network between the gateway and the first upstream server.
    Network(bool),
}

/// What is done to a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProcessAct {
    /// SIGKILL.
    Kill,
    /// It is started again.
    Start,
    /// SIGSTOP: its connections stay open, and nothing comes.
    Stop,
    /// SIGCONT.
    Continue,
}

/// What is done to the server of counters or of the configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreAct {
    /// To its process.
    Process(ProcessAct),
    /// From now on each of its answers comes late, or again at once.
    Slow(bool),
    /// Its standby takes its place.
    Promote,
}

/// What is done to a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiskAct {
    /// Not a byte is left.
    Fill,
    /// What filled it is removed.
    Free,
    /// No file on it can be changed.
    Forbid,
    /// Its files can be changed again.
    Allow,
}

impl Act {
    /// What a step says: `act` is done on `on`, of which there may be several.
    pub(super) fn read(on: &str, number: usize, act: &str) -> Result<Self, String> {
        let unknown = |known: &str| format!("`{act}` cannot be done on `{on}`: use {known}");
        match on {
            "upstream" => match process_act(act) {
                Some(process) => Ok(Self::Upstream(number, process)),
                None => Ok(Self::Behave(number, act.parse()?)),
            },
            "gateway" => {
                gateway_act(act).ok_or_else(|| unknown("kill, start, stop, continue, reload or upgrade"))
            }
            "descriptors" if act == "restore" => Ok(Self::Descriptors(None)),
            "descriptors" => act
                .parse()
                .map(|limit| Self::Descriptors(Some(limit)))
                .map_err(|_| unknown("a number or restore")),
            "dns" => act.parse().map(Self::Dns),
            "store" => store_act(act)
                .map(Self::Store)
                .ok_or_else(|| unknown("kill, start, stop, continue, slow, prompt or promote")),
            "disk" => {
                disk_act(act).map(Self::Disk).ok_or_else(|| unknown("fill, free, read-only or writable"))
            }
            "clock" => {
                act.parse().map(Self::Clock).map_err(|_| unknown("a number of seconds, such as -3600"))
            }
            "network" => match act {
                "cut" => Ok(Self::Network(true)),
                "join" => Ok(Self::Network(false)),
                _ => Err(unknown("cut or join")),
            },
            _ => Err(format!(
                "nothing can be done on `{on}`: use upstream, gateway, descriptors, dns, store, disk, clock or network"
            )),
        }
    }
}

fn gateway_act(act: &str) -> Option<Act> {
    match act {
        "reload" => Some(Act::Reload),
        "upgrade" => Some(Act::Upgrade),
        _ => process_act(act).map(Act::Gateway),
    }
}

fn store_act(act: &str) -> Option<StoreAct> {
    match act {
        "slow" => Some(StoreAct::Slow(true)),
        "prompt" => Some(StoreAct::Slow(false)),
        "promote" => Some(StoreAct::Promote),
        _ => process_act(act).map(StoreAct::Process),
    }
}

fn disk_act(act: &str) -> Option<DiskAct> {
    match act {
        "fill" => Some(DiskAct::Fill),
        "free" => Some(DiskAct::Free),
        "read-only" => Some(DiskAct::Forbid),
        "writable" => Some(DiskAct::Allow),
        _ => None,
    }
}

fn process_act(act: &str) -> Option<ProcessAct> {
    match act {
        "kill" => Some(ProcessAct::Kill),
        "start" => Some(ProcessAct::Start),
        "stop" => Some(ProcessAct::Stop),
        "continue" => Some(ProcessAct::Continue),
        _ => None,
    }
}
