//! Gateways as processes of this machine.
use super::family::Family;
use super::main_process::MainProcess;
use super::ready::Unready;
use super::{Driver, DriverError, Running, leftover, log, port, ready, signal};
use crate::observe::pin_current_thread;
use crate::observe::procfs::{self, Stat};
use crate::subprocess::{MARK, output_within};
use crate::target::{Launch, Reload};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

const POLL_INTERVAL: Duration = Duration::from_millis(3);
const STOP_TIMEOUT: Duration = Duration::from_secs(5);
const STOP_COMMAND_TIMEOUT: Duration = Duration::from_secs(15);
/// How long the other processes of a gateway may outlive its main process.
const FOLLOW_TIMEOUT: Duration = Duration::from_secs(1);
const PORTS_FREE_TIMEOUT: Duration = Duration::from_secs(2);
const RELOAD_TIMEOUT: Duration = Duration::from_secs(30);
/// A new process has to start before it takes over.
const UPGRADE_TIMEOUT: Duration = Duration::from_secs(120);

/// Starts gateways as processes of this machine, each in a process group of its own.
#[derive(Clone, Copy, Debug, Default)]
pub struct Process;

impl Driver for Process {
    fn name(&self) -> &'static str {
        "process"
    }

    fn start(&self, launch: &Launch, cpus: &[usize]) -> Result<Box<dyn Running>, DriverError> {
        leftover::check_unused(&launch.folder)?;
        leftover::end_in(&launch.folder);
        super::write_files(launch)?;
        port::check_free(&launch.listeners)?;
        let mut gateway = Gateway::spawn(launch, cpus)?;
        gateway.wait_until_ready()?;
        Ok(Box::new(gateway))
    }

    fn end_below(&self, folder: &Path) -> Result<(), DriverError> {
        let ended = leftover::end_below(folder).and_then(|_| leftover::end_unlisted(folder));
        ended.map_err(|error| {
            DriverError::System(format!("cannot end what was started in {}", folder.display()), error)
        })
    }
}

struct Gateway {
    launch: Launch,
    child: Child,
    family: Family,
    /// The child, what it runs in the foreground, or what it has put into the background.
    main: MainProcess,
    began: Instant,
    stopped: bool,
}

impl Gateway {
    fn spawn(launch: &Launch, cpus: &[usize]) -> Result<Gateway, DriverError> {
        let folder = fs::canonicalize(&launch.folder).map_err(|error| {
            DriverError::System(format!("cannot start in the folder {}", launch.folder.display()), error)
        })?;
        let launch = Launch { folder, files: Vec::new(), ..launch.clone() };
        // Orphans below this process become its children, so that a daemon can be found and waited for.
        rustix::process::set_child_subreaper(Some(rustix::process::getpid()))
            .map_err(|error| DriverError::System("cannot adopt orphans".to_owned(), error.into()))?;
        let command = command(&launch)?;
        let earlier = procfs::processes();
        let began = Instant::now();
        let child = spawn_pinned(command, cpus).map_err(|error| not_started(&launch, error))?;
        // Until it is waited for, no other process gets its pid.
        let main = MainProcess::from(&Stat::of(child.id()).unwrap_or_default());
        let family = Family::new(&launch, child.id(), earlier);
        let mut gateway = Gateway { launch, child, family, main, began, stopped: false };
        gateway.note()?;
        Ok(gateway)
    }

    fn note(&mut self) -> Result<(), DriverError> {
        let members = self.family.members();
        leftover::note(&self.launch.folder, members.values()).map_err(|error| {
            DriverError::System(format!("cannot write into {}", self.launch.folder.display()), error)
        })
    }

    fn wait_until_ready(&mut self) -> Result<(), DriverError> {
        let launch = self.launch.clone();
        if let Err(why) = ready::wait(self, &launch).and_then(|()| self.find_main()) {
            let ending =
                self.child.try_wait().ok().flatten().map_or(String::new(), |status| status.to_string());
            return Err(ready::error(&launch, &why, &ending, &self.log()));
        }
        port::check_own(&launch.listeners, || self.family.members())?;
        self.note()
    }

    /// Waits until it is known which process is the main one. A daemon may listen before the command that starts it has
    /// ended and before it has written its pid file.
    fn find_main(&mut self) -> Result<(), Unready> {
        let deadline = self.began + self.launch.ready.within;
        let mut noted = None;
        loop {
            let over = match self.child.try_wait() {
                Ok(None) => false,
                Ok(Some(status)) if status.success() => true,
                _ => return Err(Unready::Ended),
            };
            let members = self.family.members();
            if members.is_empty() {
                return Err(Unready::Ended);
            }
            if let Some(main) = self.main_of(&members, over) {
                self.main = main;
                return Ok(());
            }
            // If the laboratory is killed meanwhile, a file must name the daemon that it leaves.
            let named = self.family.named(&members).map(|stat| stat.pid);
            if named != noted && self.note().is_ok() {
                noted = named;
            }
            if Instant::now() >= deadline {
                return Err(Unready::Late(self.missing(over)));
            }
            thread::sleep(POLL_INTERVAL);
        }
    }

    /// The main process among the members, once it is known; `over` says that the command has ended.
    fn main_of(&self, members: &BTreeMap<u32, Stat>, over: bool) -> Option<MainProcess> {
        let command = self.child.id();
        let below = procfs::with_descendants(BTreeSet::from([command]), members);
        if self.launch.pid_file.is_some() {
            let named = self.family.named(members)?;
            return (over || below.contains(&named.pid)).then(|| MainProcess::from(&named));
        }
        if over {
            return orphan(members, command);
        }
        let foreground = orphan(members, command).is_none() || {
            let holders = port::traffic_holders(&self.launch.listeners);
            holders.is_empty() || holders.iter().any(|holder| below.contains(&holder.pid))
        };
        foreground.then(|| members.get(&command).map(MainProcess::from)).flatten()
    }

    fn missing(&self, over: bool) -> String {
        match &self.launch.pid_file {
            Some(file) if over => format!("its pid file {} names none of its processes", file.display()),
            _ => "its command has not ended, although what it has put into the background listens".to_owned(),
        }
    }

    /// Whether it has ended, also where it is in the background.
    fn ended(&mut self) -> bool {
        if self.main.pid != self.child.id() {
            return !self.main.is_alive();
        }
        match self.child.try_wait() {
            Ok(Some(status)) => !(status.success() && self.follow_into_background()),
            Ok(None) => false,
            Err(_) => true,
        }
    }

    /// The child has ended well: if it left a daemon, that is the gateway now.
    fn follow_into_background(&mut self) -> bool {
        let members = self.family.members();
        let named = self.family.named(&members).as_ref().map(MainProcess::from);
        let daemon = named.or_else(|| orphan(&members, self.child.id()));
        self.main = daemon.unwrap_or(self.main);
        daemon.is_some()
    }

    fn system(&self, what: &str, error: io::Error) -> DriverError {
        DriverError::System(format!("{} {what}", self.launch.label), error)
    }

    /// Ends everything by force; whether that worked.
    fn end(&mut self) -> bool {
        let all = self.family.kill();
        let waited = self.child.kill().and_then(|()| self.child.wait()).is_ok();
        leftover::clear(&self.launch.folder);
        self.stopped = true;
        all && waited
    }

    /// Runs a command of the target's that acts upon the gateway.
    fn act(&self, what: &str, command: &[String], within: Duration) -> Result<(), DriverError> {
        let label = &self.launch.label;
        let (program, arguments) = split(command, label)?;
        let mut command = Command::new(program);
        command.args(arguments).envs(&self.launch.environment).current_dir(&self.launch.folder);
        let output = output_within(&mut command, within)
            .map_err(|error| self.system(&format!("cannot {what} with {program}"), error))?;
        if output.status.success() {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        Err(DriverError::Unable(format!(
            "{label} did not {what} ({}){}",
            output.status,
            log::last_lines(&said)
        )))
    }

    /// Asks it to stop: by its command, or by its signal if it has no command or that failed.
    fn ask_to_end(&mut self) -> Result<(), DriverError> {
        let signal = signal::named(match self.launch.stop_signal.as_str() {
            "" => "TERM",
            name => name,
        })?;
        let by_command = match self.launch.stop_command.as_slice() {
            [] => Ok(()),
            command => self.act("stop", command, STOP_COMMAND_TIMEOUT),
        };
        if by_command.is_err() || self.launch.stop_command.is_empty() {
            self.main.send(signal);
        }
        by_command
    }

    fn wait_for_end(&mut self) {
        let mut deadline = Instant::now() + STOP_TIMEOUT;
        while self.alive() && Instant::now() < deadline {
            thread::sleep(POLL_INTERVAL);
        }
        deadline = deadline.min(Instant::now() + FOLLOW_TIMEOUT);
        while Instant::now() < deadline && !self.family.members().is_empty() {
            thread::sleep(POLL_INTERVAL);
        }
    }
}

impl Running for Gateway {
    fn pid(&self) -> u32 {
        self.main.pid
    }

    fn began(&self) -> Instant {
        self.began
    }

    fn reload(&mut self) -> Result<(), DriverError> {
        match self.launch.reload.clone() {
            Some(Reload::Signal(name)) => self.signal(&name),
            Some(Reload::Command(command)) => self.act("reload", &command, RELOAD_TIMEOUT),
            None => Err(super::no_reload(&self.launch.label)),
        }
    }

    fn upgrade(&mut self) -> Result<(), DriverError> {
        match self.launch.upgrade.clone() {
            Some(Reload::Signal(name)) => self.signal(&name)?,
            Some(Reload::Command(command)) => self.act("upgrade", &command, UPGRADE_TIMEOUT)?,
            None => {
                let label = &self.launch.label;
                return Err(DriverError::Unable(format!("{label} has no way to replace its process")));
            }
        }
        // The old process may still serve its last requests.
        let members = self.family.members();
        if let Some(named) = self.family.named(&members) {
            self.main = MainProcess::from(&named);
        }
        self.note()
    }

    fn signal(&mut self, name: &str) -> Result<(), DriverError> {
        let signal = signal::named(name)?;
        if self.alive() && self.main.send(signal) {
            return Ok(());
        }
        Err(DriverError::Unable(format!("{} has ended and takes no signal {name}", self.launch.label)))
    }

    fn replace(&mut self, file: &str, text: &str) -> Result<(), DriverError> {
        super::replace(&self.launch, file, text)
    }

    fn alive(&mut self) -> bool {
        !self.stopped && !self.ended()
    }

    fn log(&self) -> String {
        log::end_of(&self.launch.folder.join(log::OUTPUT)) + &log::errors(&self.launch)
    }

    fn stop(&mut self) -> Result<(), DriverError> {
        if self.stopped {
            return Ok(());
        }
        // A daemon may have come into being since it was last looked at.
        let asked = if self.alive() { self.ask_to_end() } else { Ok(()) };
        self.wait_for_end();
        if !self.end() {
            let label = &self.launch.label;
            let text = format!("{label} could not be ended: end its processes by hand");
            return Err(DriverError::Unable(text));
        }
        port::wait_until_free(&self.launch.listeners, PORTS_FREE_TIMEOUT).and(asked)
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        if !self.stopped {
            self.end();
        }
    }
}

/// What a command that is over has left: a member that this process has adopted.
fn orphan(members: &BTreeMap<u32, Stat>, command: u32) -> Option<MainProcess> {
    let ours = std::process::id();
    members.values().find(|stat| stat.parent == ours && stat.pid != command).map(MainProcess::from)
}

fn command(launch: &Launch) -> Result<Command, DriverError> {
    let (program, arguments) = split(&launch.command, &launch.label)?;
    let file = launch.folder.join(log::OUTPUT);
    let open = || File::options().create(true).append(true).open(&file);
    let (stdout, stderr) = open()
        .and_then(|output| Ok((output.try_clone()?, output)))
        .map_err(|error| DriverError::System(format!("cannot write {}", file.display()), error))?;
    let mut command = Command::new(program);
    command.args(arguments).envs(&launch.environment).env(MARK, &launch.folder).current_dir(&launch.folder);
    command.stdin(Stdio::null()).stdout(stdout).stderr(stderr);
    std::os::unix::process::CommandExt::process_group(&mut command, 0);
    Ok(command)
}

fn split<'a>(command: &'a [String], label: &str) -> Result<(&'a String, &'a [String]), DriverError> {
    command.split_first().ok_or_else(|| DriverError::Unable(format!("{label} has an empty command")))
}

/// A child inherits the CPUs of the thread that starts it.
fn spawn_pinned(mut command: Command, cpus: &[usize]) -> io::Result<Child> {
    let spawn = || {
        pin_current_thread(cpus)?;
        command.spawn()
    };
    thread::scope(|scope| scope.spawn(spawn).join())
        .unwrap_or_else(|_| Err(io::Error::other("the thread that starts it panicked")))
}

fn not_started(launch: &Launch, error: io::Error) -> DriverError {
    let program = launch.command.first().map_or("", String::as_str);
    match error.kind() {
        io::ErrorKind::NotFound => DriverError::Missing(format!(
            "{} needs the program {program}, which is not there: install it, or name its path in the target",
            launch.label
        )),
        _ => DriverError::System(format!("{} cannot be started as {program}", launch.label), error),
    }
}
