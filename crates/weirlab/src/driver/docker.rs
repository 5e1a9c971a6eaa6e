//! Gateways in containers, through the engine's command line: Docker's, or one that takes the same options (Podman).
//!
//! A container shares the host's network, so that a request's way is the same as to a process, and sees its folder at
//! the same path. It is not started with `--rm`: the output of a gateway that ends at once would be lost.
use super::log::{self, last_lines};
use super::process::Process;
use super::{Driver, DriverError, Running, image, port, ready, signal};
use crate::observe::procfs::{self, Stat};
use crate::observe::ranges;
use crate::subprocess::output_within;
use crate::target::{Launch, Reload};
use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

/// Marks the containers of a laboratory with the folder of their launch.
const LABEL: &str = "weirlab";
const ENGINE_TIMEOUT: Duration = Duration::from_secs(60);
const STOP_TIMEOUT_S: &str = "5";
const INSTALL: &str = "install it (Debian: `apt-get install docker.io`), or name another with WEIRLAB_DOCKER";

/// Starts gateways in containers.
#[derive(Clone, Debug)]
pub struct Docker {
    program: String,
    host: Option<String>,
}

impl Docker {
    /// By the engine's command line, `docker` if none is named, at the host it is set up for unless one is given, such
    /// as `unix:///run/docker.sock`.
    ///
    /// # Errors
    /// When the program is not there or its engine does not answer.
    pub fn new(program: Option<&str>, host: Option<&str>) -> Result<Docker, DriverError> {
        let program = program.unwrap_or("docker").to_owned();
        let docker = Docker { program, host: host.map(str::to_owned) };
        docker.done(&["version"]).map_err(|error| match error {
            DriverError::Unable(text) => DriverError::Unable(format!("{text}\nStart the engine first.")),
            other => other,
        })?;
        Ok(docker)
    }

    /// As [`Docker::new`], by the program that the variable `WEIRLAB_DOCKER` names.
    ///
    /// # Errors
    /// As [`Docker::new`].
    pub fn from_environment() -> Result<Docker, DriverError> {
        Docker::new(std::env::var("WEIRLAB_DOCKER").ok().as_deref(), None)
    }

    /// Makes an image of a binary alone, with the libraries that its loader asks for, and pulls none. Everything lies
    /// where it lies here, so that a command that starts the binary here starts it there too.
    ///
    /// # Errors
    /// When the binary or one of its libraries cannot be read, or the engine does not take the image.
    pub fn image_from_binary(&self, binary: &Path, tag: &str) -> Result<(), DriverError> {
        let files = image::files(binary)?;
        let broken =
            |error| DriverError::System(format!("cannot make an image of {}", binary.display()), error);
        let mut import = self.command(&["import", "-", tag]);
        let mut child = import
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| self.unstarted(error))?;
        let written = child.stdin.take().map_or(Ok(()), |pipe| image::write(&files, pipe));
        let output = child.wait_with_output().map_err(broken)?;
        // An engine that refuses closes the pipe; its message says why.
        checked("import", &output).and_then(|_| written.map_err(broken))
    }

    /// Removes containers that launches in this folder, or in folders below it, left behind; returns their ids.
    ///
    /// # Errors
    /// When the engine does not answer.
    pub fn remove_below(&self, folder: &Path) -> Result<Vec<String>, DriverError> {
        let format = format!("{{{{.ID}}}} {{{{.Label \"{LABEL}\"}}}}");
        let listed =
            self.done(&["ps", "--all", "--filter", &format!("label={LABEL}"), "--format", &format])?;
        let folder = fs::canonicalize(folder).unwrap_or_else(|_| folder.to_owned());
        let mut ended = Vec::new();
        for (id, of) in listed.lines().filter_map(|line| line.split_once(' ')) {
            if Path::new(of).starts_with(&folder) {
                self.done(&["rm", "--force", id])?;
                ended.push(id.to_owned());
            }
        }
        Ok(ended)
    }

    /// The launch's image; for a program of this machine, one that is made of it once.
    fn image(&self, launch: &Launch) -> Result<String, DriverError> {
        if let Some(image) = &launch.image {
            return Ok(image.clone());
        }
        let program = Path::new(launch.command.first().map_or("", String::as_str));
        let tag = image::tag(program)?;
        if !self.output(&["image", "inspect", &tag])?.status.success() {
            self.image_from_binary(program, &tag)?;
        }
        Ok(tag)
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command.args(arguments);
        if let Some(host) = &self.host {
            command.env("DOCKER_HOST", host).env("CONTAINER_HOST", host);
        }
        command
    }

    /// Runs a command of the engine and returns its standard output.
    fn done(&self, arguments: &[&str]) -> Result<String, DriverError> {
        let output = self.output(arguments)?;
        checked(arguments.first().unwrap_or(&""), &output)?;
        Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    }

    fn output(&self, arguments: &[&str]) -> Result<Output, DriverError> {
        output_within(&mut self.command(arguments), ENGINE_TIMEOUT).map_err(|error| self.unstarted(error))
    }

    fn unstarted(&self, error: io::Error) -> DriverError {
        match error.kind() {
            io::ErrorKind::NotFound => {
                DriverError::Missing(format!("{} is not there: {INSTALL}", self.program))
            }
            _ => DriverError::System(format!("{} does not answer", self.program), error),
        }
    }

    fn run(&self, launch: &Launch, cpus: &[usize]) -> Result<String, DriverError> {
        let arguments = arguments(launch, cpus);
        let started = self.done(&arguments.iter().map(String::as_str).collect::<Vec<_>>());
        if started.is_err() {
            // A container that cannot be started was created all the same.
            self.remove_below(&launch.folder)?;
        }
        started
    }
}

impl Driver for Docker {
    fn name(&self) -> &'static str {
        "docker"
    }

    fn start(&self, launch: &Launch, cpus: &[usize]) -> Result<Box<dyn Running>, DriverError> {
        super::write_files(launch)?;
        let folder = fs::canonicalize(&launch.folder).map_err(|error| {
            DriverError::System(format!("cannot start in the folder {}", launch.folder.display()), error)
        })?;
        let image = Some(self.image(launch)?);
        let launch = Launch { folder, image, files: Vec::new(), ..launch.clone() };
        image::open_to_all(&launch.folder).map_err(|error| {
            DriverError::System(format!("cannot open {} to the container", launch.folder.display()), error)
        })?;
        self.remove_below(&launch.folder)?;
        port::check_free(&launch.listeners)?;
        let began = Instant::now();
        let id = self.run(&launch, cpus)?;
        let mut container = Container { docker: self.clone(), launch, id, root: None, began, stopped: false };
        container.wait_until_ready()?;
        Ok(Box::new(container))
    }

    fn end_below(&self, folder: &Path) -> Result<(), DriverError> {
        // The session may have run processes.
        Process.end_below(folder)?;
        self.remove_below(folder).map(drop)
    }
}

struct Container {
    docker: Docker,
    launch: Launch,
    id: String,
    /// Its first process, as this machine sees it; none if it had ended before it was seen.
    root: Option<Stat>,
    began: Instant,
    stopped: bool,
}

impl Container {
    fn wait_until_ready(&mut self) -> Result<(), DriverError> {
        self.find_root()?;
        let launch = self.launch.clone();
        if let Err(why) = ready::wait(self, &launch) {
            let ending =
                self.docker.done(&["inspect", "--format", "exit status: {{.State.ExitCode}}", &self.id])?;
            return Err(ready::error(&launch, &why, &ending, &self.log()));
        }
        port::check_own(&launch.listeners, || {
            let mut members = procfs::processes();
            let tree = procfs::with_descendants(BTreeSet::from([self.pid()]), &members);
            members.retain(|pid, _| tree.contains(pid));
            members
        })
    }

    fn find_root(&mut self) -> Result<(), DriverError> {
        let pid = self.docker.done(&["inspect", "--format", "{{.State.Pid}}", &self.id])?;
        let Some(pid) = pid.parse::<u32>().ok().filter(|pid| *pid > 0) else { return Ok(()) };
        self.root = Stat::of(pid);
        let elsewhere = self.root.is_none() && self.says_it_runs()?;
        if elsewhere {
            return Err(DriverError::Unable(format!(
                "the processes of {} are not visible here: its CPU time cannot be measured with an engine that runs \
                 in another machine (Docker Desktop, a remote host); use one on this kernel",
                self.docker.program
            )));
        }
        Ok(())
    }

    fn says_it_runs(&self) -> Result<bool, DriverError> {
        Ok(self.docker.done(&["inspect", "--format", "{{.State.Running}}", &self.id])? == "true")
    }

    fn said(&self) -> String {
        let output = self.docker.output(&["logs", "--tail", "10000", &self.id]);
        let bytes = output.map(|output| [output.stdout, output.stderr].concat()).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Keeps its output, then removes it, by force if it runs.
    fn remove(&mut self) -> Result<(), DriverError> {
        // A full disk must not keep a container alive.
        let _ = fs::write(self.launch.folder.join(log::OUTPUT), self.said());
        self.docker.done(&["rm", "--force", &self.id])?;
        self.stopped = true;
        Ok(())
    }
}

impl Running for Container {
    fn pid(&self) -> u32 {
        self.root.as_ref().map_or(0, |root| root.pid)
    }

    fn began(&self) -> Instant {
        self.began
    }

    fn reload(&mut self) -> Result<(), DriverError> {
        match self.launch.reload.clone() {
            Some(Reload::Signal(name)) => self.signal(&name),
            Some(Reload::Command(command)) => {
                let folder = self.launch.folder.to_string_lossy();
                let mut arguments = vec!["exec", "--workdir", &folder, &self.id];
                arguments.extend(command.iter().map(String::as_str));
                self.docker.done(&arguments).map(drop)
            }
            None => Err(super::no_reload(&self.launch.label)),
        }
    }

    fn signal(&mut self, name: &str) -> Result<(), DriverError> {
        signal::named(name)?;
        self.docker.done(&["kill", "--signal", name, &self.id]).map(drop)
    }

    fn replace(&mut self, file: &str, text: &str) -> Result<(), DriverError> {
        super::replace(&self.launch, file, text)
    }

    fn alive(&mut self) -> bool {
        // The engine takes tens of milliseconds to say the same.
        let started =
            |root: &Stat| Stat::of(root.pid).is_some_and(|now| now.started == root.started && !now.ended());
        !self.stopped && self.root.as_ref().is_some_and(started)
    }

    fn log(&self) -> String {
        let said =
            if self.stopped { log::end_of(&self.launch.folder.join(log::OUTPUT)) } else { self.said() };
        said + &log::errors(&self.launch)
    }

    fn stop(&mut self) -> Result<(), DriverError> {
        if self.stopped {
            return Ok(());
        }
        // It was started with its stop signal; the engine kills it when its time is over.
        self.docker.done(&["stop", "-t", STOP_TIMEOUT_S, &self.id])?;
        self.remove()
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        if !self.stopped
            && let Err(error) = self.remove()
        {
            let _ = io::Write::write_fmt(&mut io::stderr(), format_args!("{}: {error}\n", self.launch.label));
        }
    }
}

fn arguments(launch: &Launch, cpus: &[usize]) -> Vec<String> {
    let folder = launch.folder.to_string_lossy();
    // An image that is not there is for the user to fetch: that takes minutes, and is no part of a measurement.
    let mut arguments = ["run", "--detach", "--network=host", "--pull=never"].map(str::to_owned).to_vec();
    arguments.push(format!("--label={LABEL}={folder}"));
    arguments.push(format!("--volume={folder}:{folder}"));
    arguments.push(format!("--workdir={folder}"));
    if !launch.stop_signal.is_empty() {
        arguments.push(format!("--stop-signal={}", launch.stop_signal));
    }
    if !cpus.is_empty() {
        arguments.push(format!("--cpuset-cpus={}", ranges(cpus)));
    }
    arguments.extend(launch.environment.iter().map(|(name, value)| format!("--env={name}={value}")));
    arguments.extend(launch.image.clone());
    arguments.extend(launch.command.iter().cloned());
    arguments
}

fn checked(action: &str, output: &Output) -> Result<(), DriverError> {
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(DriverError::Unable(format!("the container engine refused `{action}`{}", last_lines(&said))))
}
