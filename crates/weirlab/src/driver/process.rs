//! Gateways as processes of this machine.
use super::family::{Family, MARK, send};
use super::timed::output_within;
use super::{Driver, DriverError, Running, leftover, log, port, ready, signal};
use crate::observe::pin_current_thread;
use crate::target::{Launch, Reload};
use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

const LOOK_EVERY: Duration = Duration::from_millis(3);
const STOP_WITHIN: Duration = Duration::from_secs(5);
const RELOAD_WITHIN: Duration = Duration::from_secs(30);

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
        port::check_free(&launch.listeners)?;
        let mut gateway = Gateway::spawn(launch, cpus)?;
        gateway.wait_until_ready()?;
        Ok(Box::new(gateway))
    }

    fn end_below(&self, folder: &Path) -> Result<(), DriverError> {
        leftover::end_below(folder).map(drop).map_err(|error| {
            DriverError::System(format!("cannot look for leftovers in {}", folder.display()), error)
        })
    }
}

struct Gateway {
    launch: Launch,
    child: Child,
    family: Family,
    /// The root of the tree: the child, or what the child put into the background before it ended.
    root: u32,
    began: Instant,
    stopped: bool,
}

impl Gateway {
    fn spawn(launch: &Launch, cpus: &[usize]) -> Result<Gateway, DriverError> {
        let folder = fs::canonicalize(&launch.folder).map_err(|error| {
            DriverError::System(format!("cannot start in the folder {}", launch.folder.display()), error)
        })?;
        let launch = Launch { folder, ..launch.clone() };
        // Orphans below this process become its children, so that a daemon can be found and waited for.
        rustix::process::set_child_subreaper(Some(rustix::process::getpid()))
            .map_err(|error| DriverError::System("cannot adopt orphans".to_owned(), error.into()))?;
        let command = command(&launch)?;
        let began = Instant::now();
        let child = spawn_pinned(command, cpus).map_err(|error| not_started(&launch, error))?;
        let root = child.id();
        let family = Family::new(&launch.folder, root);
        let mut gateway = Gateway { launch, child, family, root, began, stopped: false };
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
        if let Err(why) = ready::wait(self, &launch) {
            let ending =
                self.child.try_wait().ok().flatten().map_or(String::new(), |status| status.to_string());
            return Err(ready::error(&launch, &why, &ending, &self.log()));
        }
        port::check_own(&launch.listeners, || self.family.members())?;
        self.note()
    }

    /// Whether it has ended, also where it is in the background.
    fn ended(&mut self) -> bool {
        if self.root != self.child.id() {
            return !self.family.members().contains_key(&self.root);
        }
        match self.child.try_wait() {
            Ok(Some(status)) => !(status.success() && self.follow_into_background()),
            Ok(None) => false,
            Err(_) => true,
        }
    }

    /// The child has ended well: if it left an orphan, that is the gateway now.
    fn follow_into_background(&mut self) -> bool {
        let ours = std::process::id();
        let daemon = self.family.members().into_values().find(|stat| stat.parent == ours);
        self.root = daemon.as_ref().map_or(self.root, |daemon| daemon.pid);
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

    fn run_reload(&self, command: &[String]) -> Result<(), DriverError> {
        let label = &self.launch.label;
        let (program, arguments) = split(command, label)?;
        let mut command = Command::new(program);
        command.args(arguments).envs(&self.launch.environment).current_dir(&self.launch.folder);
        let output = output_within(&mut command, RELOAD_WITHIN)
            .map_err(|error| self.system(&format!("cannot reload with {program}"), error))?;
        if output.status.success() {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        Err(DriverError::Unable(format!(
            "{label} did not reload ({}){}",
            output.status,
            log::last_lines(&said)
        )))
    }
}

impl Running for Gateway {
    fn pid(&self) -> u32 {
        self.root
    }

    fn began(&self) -> Instant {
        self.began
    }

    fn reload(&mut self) -> Result<(), DriverError> {
        match self.launch.reload.clone() {
            Some(Reload::Signal(name)) => self.signal(&name),
            Some(Reload::Command(command)) => self.run_reload(&command),
            None => Err(super::no_reload(&self.launch.label)),
        }
    }

    fn signal(&mut self, name: &str) -> Result<(), DriverError> {
        let signal = signal::named(name)?;
        if self.alive() && send(self.root, signal) {
            return Ok(());
        }
        Err(DriverError::Unable(format!("{} has ended and takes no signal {name}", self.launch.label)))
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
        let name = if self.launch.stop_signal.is_empty() { "TERM" } else { &self.launch.stop_signal };
        send(self.root, signal::named(name)?);
        let deadline = Instant::now() + STOP_WITHIN;
        while self.alive() && Instant::now() < deadline {
            thread::sleep(LOOK_EVERY);
        }
        if self.end() {
            return Ok(());
        }
        Err(DriverError::Unable(format!(
            "{} could not be ended: end its processes by hand",
            self.launch.label
        )))
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        if !self.stopped {
            self.end();
        }
    }
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
