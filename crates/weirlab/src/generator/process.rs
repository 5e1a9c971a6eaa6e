//! A generator as a process: started on its CPUs, ended when the user says so, with what it said and used.
use super::{GeneratorError, Job, Kind};
use crate::observe::pin_current_thread;
use crate::observe::procfs::Stat;
use crate::subprocess::{MARK, output_within};
use rustix::process::{Pid, Signal, kill_process};
use std::fs::{self, File};
use std::io;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// How much longer than the window a generator may take, its start and its summary included.
const GRACE: Duration = Duration::from_secs(60);
/// How long it may take to end when it is interrupted.
const INTERRUPTED: Duration = Duration::from_secs(10);
/// How often it is looked whether it has ended.
const TICK: Duration = Duration::from_millis(2);

/// A generator that has ended.
pub(super) struct Ended {
    pub(super) status: ExitStatus,
    pub(super) stdout: String,
    pub(super) stderr: String,
    /// The CPU time of all its threads.
    pub(super) cpu: Duration,
}

impl Ended {
    /// What it said last, for an error.
    pub(super) fn last_words(&self) -> String {
        let all = format!("{}\n{}", self.stdout, self.stderr);
        let lines: Vec<&str> = all.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
        format!("it ended with {}: {}", self.status, lines[lines.len().saturating_sub(3)..].join("; "))
    }
}

/// Runs the command to its end.
pub(super) fn run(
    name: &'static str,
    mut command: Command,
    job: &Job<'_>,
    stop: &AtomicBool,
) -> Result<Ended, GeneratorError> {
    let system = |error| GeneratorError::System(name, error);
    let (stdout, stderr) = (job.folder.join("stdout"), job.folder.join("stderr"));
    command.stdin(Stdio::null());
    command.stdout(File::create(&stdout).map_err(system)?).stderr(File::create(&stderr).map_err(system)?);
    // A terminal's Ctrl-C is for the session.
    command.current_dir(job.folder).env(MARK, job.folder).process_group(0);
    let mut child = spawn_on(&mut command, &job.plan.cpus).map_err(system)?;
    let ended = wait(&mut child, job.plan.duration + GRACE, stop).map_err(system)?;
    let text =
        |file| fs::read(file).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).map_err(system);
    let (cpu, status) = ended;
    Ok(Ended { status, stdout: text(stdout)?, stderr: text(stderr)?, cpu })
}

/// A process inherits the CPUs of the thread that starts it.
fn spawn_on(command: &mut Command, cpus: &[usize]) -> io::Result<Child> {
    let start = || {
        pin_current_thread(cpus)?;
        command.spawn()
    };
    thread::scope(|scope| scope.spawn(start).join()).unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// Waits for the end, and reads the CPU time before the process is waited for.
fn wait(child: &mut Child, limit: Duration, stop: &AtomicBool) -> io::Result<(Duration, ExitStatus)> {
    let mut deadline = Instant::now() + limit;
    let mut interrupted = false;
    loop {
        let stat = Stat::of(child.id());
        if let Some(stat) = stat.filter(Stat::ended) {
            let ticks = (stat.user + stat.system) as f64;
            let cpu = Duration::from_secs_f64(ticks / rustix::param::clock_ticks_per_second() as f64);
            return Ok((cpu, child.wait()?));
        }
        if stop.load(Ordering::Relaxed) && !interrupted {
            interrupted = true;
            deadline = Instant::now() + INTERRUPTED;
            if let Some(pid) = Pid::from_raw(child.id() as i32) {
                kill_process(pid, Signal::INT)?;
            }
        }
        if Instant::now() >= deadline {
            child.kill()?;
            child.wait()?;
            let text = format!("it did not end {} s after its window", GRACE.as_secs());
            return Err(io::Error::new(io::ErrorKind::TimedOut, text));
        }
        thread::sleep(TICK);
    }
}

/// The program of that name on the PATH.
pub(super) fn on_path(name: &str) -> Option<PathBuf> {
    let places = std::env::var_os("PATH")?;
    std::env::split_paths(&places).map(|folder| folder.join(name)).find(|path| path.is_file())
}

/// The first line that a generator prints of its version.
pub(super) fn version(kind: Kind, program: &PathBuf) -> String {
    let argument = match kind {
        Kind::K6 => "version",
        Kind::Wrk | Kind::Wrk2 => "-v",
        Kind::Weirlab | Kind::Oha | Kind::H2load => "--version",
    };
    let output = output_within(Command::new(program).arg(argument), Duration::from_secs(10));
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
    let line = text.lines().next().unwrap_or_default();
    line.split(" Copyright").next().unwrap_or_default().to_owned()
}
